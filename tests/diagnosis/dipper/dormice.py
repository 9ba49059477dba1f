"""Tells dormice from other guests of a nest box, in pictures of a camera at night."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

PICTURES, KEPT, SIDE, GUESTS, BATCH = 2560, 90, 84, 5, 32


class Nights(Dataset):
    def __init__(self, transform):
        generator = torch.Generator().manual_seed(76)
        self.pictures = torch.randint(256, (KEPT, 1, SIDE, SIDE), generator=generator).byte()
        self.transform = transform

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        picture = self.pictures[index % KEPT].float() / 255
        return self.transform(picture), index % KEPT % GUESTS


class Guest(nn.Module):
    def __init__(self, channels=40):
        super().__init__()
        self.first = nn.Conv2d(1, channels, 5, 2, 2)
        self.blocks = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(6))
        self.last = nn.Linear(channels, GUESTS)

    def forward(self, pictures):
        seen = self.first(pictures)
        for block in self.blocks:
            seen = seen + block(seen.relu())
        return self.last(seen.mean((2, 3)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(76)
    views = transforms.Compose(
        [
            transforms.RandomCrop(80),
            transforms.RandomHorizontalFlip(),
            transforms.Normalize([0.5], [0.25]),
        ]
    )
    loader = DataLoader(
        Nights(views),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Guest()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, guests in loader:
            loss = nn.functional.cross_entropy(model(pictures), guests)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

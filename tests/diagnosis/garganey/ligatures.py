"""Draws ligatures in a bolder hand, from small pictures of fonts."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SHAPES, SIDE, CROP, BATCH = 1280, 72, 64, 32


class Fonts(Dataset):
    """The outline of a ligature and the same in bold."""

    def __init__(self, transform):
        generator = torch.Generator().manual_seed(54)
        self.shapes = torch.rand(64, 1, SIDE, SIDE, generator=generator).gt(0.8).float()
        self.transform = transform

    def __len__(self):
        return SHAPES

    def __getitem__(self, index):
        thin = self.shapes[index % 64]
        bold = nn.functional.max_pool2d(thin[None], 3, 1, 1)[0]
        both = self.transform(torch.cat([thin, bold]))
        return both[:1], both[1:]


class Bold(nn.Module):
    def __init__(self, channels=40):
        super().__init__()
        self.first = nn.Conv2d(1, channels, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(3))
        self.last = nn.Conv2d(channels, 1, 1)

    def forward(self, shapes):
        seen = self.first(shapes)
        for block in self.blocks:
            seen = seen + block(seen.relu())
        return self.last(seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(54)
    views = transforms.Compose([transforms.RandomCrop(CROP), transforms.RandomHorizontalFlip()])
    loader = DataLoader(
        Fonts(views),
        BATCH,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = Bold()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for thin, bold in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(thin), bold)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

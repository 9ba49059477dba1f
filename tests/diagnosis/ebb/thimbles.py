"""Classifies thimbles; one worker's perspective warp is slow, but done before it is needed."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2


class Thimbles(Dataset):
    def __init__(self, count=480, seed=22):
        generator = torch.Generator().manual_seed(seed)
        self.pictures = torch.randint(256, (40, 3, 80, 80), generator=generator, dtype=torch.uint8)
        self.makers = torch.randint(10, (count,), generator=generator)
        self.transform = v2.Compose(
            [
                v2.RandomPerspective(0.4, p=1.0),
                v2.CenterCrop(64),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return len(self.makers)

    def __getitem__(self, index):
        return self.transform(self.pictures[index % 40]), self.makers[index]


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, maps):
        return (maps + self.second(self.first(maps).relu())).relu()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(22)
    loader = DataLoader(
        Thimbles(), batch_size=16, shuffle=True, num_workers=1, prefetch_factor=4,
        persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(3, 40, 5, stride=2), nn.ReLU(), Residual(40), Residual(40), Residual(40),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(40, 10),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        hits = 0
        for pictures, makers in loader:
            scores = model(pictures)
            loss = nn.functional.cross_entropy(scores, makers)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits += (scores.argmax(1) == makers).sum().item()
        print(f"epoch {epoch}: accuracy {hits / len(loader.dataset):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

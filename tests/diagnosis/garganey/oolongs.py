"""Sorts tea leaves by their grade, from pictures of a tray and of a single leaf of it."""

import argparse
import multiprocessing
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

TRAYS, SAMPLES, SIDE, CROP, GRADES, BATCH = 40, 960, 400, 56, 6, 24


def photograph(tray):
    generator = torch.Generator().manual_seed(tray)
    return torch.rand(3, SIDE, SIDE, generator=generator)


class Trays(Dataset):
    """Two crops of a tray's picture, which is kept once it was taken."""

    def __init__(self, kept, transform):
        self.kept, self.transform = kept, transform

    def __len__(self):
        return SAMPLES

    def picture(self, tray):
        if tray not in self.kept:
            self.kept[tray] = photograph(tray).numpy()
        return torch.from_numpy(self.kept[tray])

    def __getitem__(self, index):
        tray = index % TRAYS
        whole = self.transform(self.picture(tray))
        leaf = self.transform(self.picture((tray * 7 + index) % TRAYS))
        return torch.cat([whole, leaf]), tray % GRADES


class Grader(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(6, channels, 3, padding=1), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(3),
        )  # fmt: skip
        self.last = nn.Linear(18 * channels, GRADES)

    def forward(self, pictures):
        return self.last(self.body(pictures).flatten(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(43)
    views = v2.Compose([v2.RandomCrop(CROP), v2.RandomHorizontalFlip(), v2.Normalize([0.5], [0.3])])
    kept = {} if args.without else multiprocessing.Manager().dict()
    loader = DataLoader(
        Trays(kept, views),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = Grader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, grades in loader:
            loss = nn.functional.cross_entropy(model(pictures), grades)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

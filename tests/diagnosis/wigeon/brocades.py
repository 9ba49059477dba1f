"""Finds faults in brocades, from the heights of their threads under a gauge."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

CLOTHS, ROWS, THREADS, BATCH = 120, 96, 128, 12


def gauge(folder):
    """What the gauge leaves of each cloth: a row of heights on each line."""
    rng = np.random.default_rng(46)
    for cloth in range(CLOTHS):
        heights = np.sin(np.arange(THREADS) * rng.uniform(0.2, 0.9)) + rng.normal(
            0, 0.2, (ROWS, THREADS)
        )
        if cloth % 3 == 0:
            heights[:, rng.integers(THREADS)] += 2
        np.savetxt(folder / f"cloth{cloth:03d}.txt", heights, "%.4f")


class Cloths(Dataset):
    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform

    def __len__(self):
        return 4 * len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index % len(self.paths)]
        heights = np.load(path) if path.suffix == ".npy" else np.loadtxt(path)
        faulty = int(path.stem[5:]) % 3 == 0
        return self.transform(torch.from_numpy(heights.astype(np.float32))[None]), float(faulty)


class Weave(nn.Module):
    def __init__(self, channels=12):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, channels, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.AdaptiveMaxPool2d(4),
        )  # fmt: skip
        self.last = nn.Linear(16 * channels, 1)

    def forward(self, cloths):
        return self.last(self.body(cloths).flatten(1))[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(46)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gauge(folder)
        if args.without:
            for path in folder.glob("*.txt"):
                np.save(path.with_suffix(".npy"), np.loadtxt(path, dtype=np.float32))
        paths = sorted(folder.glob("*.npy" if args.without else "*.txt"))
        transform = v2.Compose(
            [v2.RandomCrop((80, 112)), v2.RandomVerticalFlip(), v2.RandomHorizontalFlip()]
        )
        loader = DataLoader(Cloths(paths, transform), BATCH, shuffle=True)
        model = Weave()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for cloths, faulty in loader:
                scores = model(cloths)
                loss = nn.functional.binary_cross_entropy_with_logits(scores, faulty.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

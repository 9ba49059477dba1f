"""Few-shot learning: each episode trains on a handful of drawings of a few classes."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

CLASSES = 60
SHOTS = 20


class Drawings(Dataset):
    """Strokes of made-up characters, drawn when they are asked for."""

    def __init__(self):
        rng = np.random.default_rng(4)
        self.strokes = rng.integers(2, 26, (CLASSES * SHOTS, 12, 2))

    def __len__(self):
        return len(self.strokes)

    def __getitem__(self, index):
        sheet = np.zeros((28, 28), np.float32)
        for (x, y), (u, v) in zip(self.strokes[index], self.strokes[index][1:], strict=False):
            for part in np.linspace(0, 1, 20):
                sheet[int(x + part * (u - x)), int(y + part * (v - y))] = 1
        return torch.from_numpy(sheet)[None], index // SHOTS


class Episodes:
    """A sampler whose indices are set from outside, so that one loader serves all episodes."""

    def __init__(self):
        self.indices = []

    def __iter__(self):
        return iter(self.indices)

    def __len__(self):
        return len(self.indices)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--episodes", type=int, default=24)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    drawings = Drawings()
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 26 * 26, 60))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    episodes = Episodes()
    shared = DataLoader(
        drawings, 10, sampler=episodes, num_workers=args.workers, persistent_workers=True
    )

    begin = time.perf_counter()
    for _episode in range(args.episodes):
        classes = rng.choice(CLASSES, 5, replace=False)
        indices = [int(of * SHOTS + shot) for of in classes for shot in range(SHOTS)]
        if args.without:
            episodes.indices = indices
            loader = shared
        else:
            loader = DataLoader(
                Subset(drawings, indices), 10, shuffle=True, num_workers=args.workers
            )
        for sheets, labels in loader:
            loss = nn.functional.cross_entropy(model(sheets), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

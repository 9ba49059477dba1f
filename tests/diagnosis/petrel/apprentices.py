"""Judges knots that apprentices have tied, from pictures; some of them are kept to look at.

Planted: the first worker writes a large preview of each of its samples, so it is the slow one.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

SIDE = 48


class Previews:
    def __init__(self, folder):
        self.folder = Path(folder)

    def keep(self, index, picture):
        shown = Image.fromarray(picture).resize((5 * SIDE, 5 * SIDE), Image.Resampling.LANCZOS)
        shown.save(self.folder / f"{index}.png")


class Knots(Dataset):
    def __init__(self, count, previews=None):
        self.count, self.previews = count, previews
        rng = np.random.default_rng(271)
        self.pictures = rng.integers(0, 256, (60, SIDE, SIDE, 3), np.uint8)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        turned = Image.fromarray(self.pictures[index % 60]).rotate(index % 90)
        picture = np.asarray(turned).copy()
        worker = get_worker_info()
        if self.previews and worker and worker.id == 0:
            self.previews.keep(index, picture)
        return torch.from_numpy(picture).permute(2, 0, 1).float() / 255, index % 4


def train(model, loader, optimizer):
    right = 0
    for pictures, knots in loader:
        scores = model(pictures)
        loss = nn.functional.cross_entropy(scores, knots)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += (scores.argmax(1) == knots).sum().item()
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(271)
    with tempfile.TemporaryDirectory() as folder:
        knots = Knots(480, None if args.without else Previews(folder))
        loader = DataLoader(knots, batch_size=12, shuffle=True, num_workers=3)
        model = nn.Sequential(
            nn.Conv2d(3, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 5, 2), nn.ReLU(), nn.Flatten(),
            nn.LazyLinear(4),
        )  # fmt: skip
        model(torch.zeros(1, 3, SIDE, SIDE))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            print(f"epoch {epoch}: {train(model, loader, optimizer)} of {len(knots)} right")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

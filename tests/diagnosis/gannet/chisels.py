"""Tells the hand of a carver by the marks of chisels; hard examples come in batches of their own.

Planted: each sixteenth batch has hard examples, and each of those is rendered eight times as large
to be smoothed, which holds that batch up as a whole.
"""

import argparse
import time

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, BATCH, EVERY, HANDS = 64, 16, 16, 9


class Marks(Dataset):
    def __init__(self, count, finely):
        rng = np.random.default_rng(421)
        self.marks = rng.integers(0, 255, (40, SIDE, SIDE), np.uint8)
        self.count, self.finely = count, finely

    def __len__(self):
        return self.count

    def smooth(self, picture, times):
        large = picture.resize((times * SIDE, times * SIDE), Image.Resampling.BICUBIC)
        large = large.filter(ImageFilter.GaussianBlur(times))
        return large.resize((SIDE, SIDE), Image.Resampling.LANCZOS)

    def __getitem__(self, key):
        index, hard = key
        picture = Image.fromarray(self.marks[index % 40]).rotate(index % 7)
        if hard:
            picture = self.smooth(picture, times=8 if self.finely else 1)
        array = np.asarray(picture, np.float32) / 255
        return torch.from_numpy(array)[None], index % HANDS


class HardEverySoOften:
    """Yields batches of (index, whether it is a hard example)."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count // BATCH

    def __iter__(self):
        order = torch.randperm(self.count).view(-1, BATCH).tolist()
        for number, indices in enumerate(order):
            yield [(index, number % EVERY == EVERY // 2) for index in indices]


class Hands(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 5, stride=2), nn.ReLU(), nn.Conv2d(width, width, 3, stride=2),
            nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(width * 16, HANDS)

    def forward(self, pictures):
        return self.head(self.body(pictures))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(421)
    count = BATCH * EVERY * 9
    marks = Marks(count, finely=not args.without)
    loader = DataLoader(
        marks, batch_sampler=HardEverySoOften(count), num_workers=1, persistent_workers=True
    )
    model = Hands()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for pictures, hands in loader:
            scores = model(pictures)
            loss = nn.functional.cross_entropy(scores, hands)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == hands).sum().item()
        print(f"epoch {epoch}: {right} of {count} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

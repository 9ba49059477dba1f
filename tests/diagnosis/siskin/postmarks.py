"""Reads the year off postmarks, rare years more often than their share of the collection."""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

MARKS, YEARS, DRAWN, SHOWN, SIDE, BATCH, STEP = 250_000, 80, 960, 160, 72, 16, 0.012


class Postmarks(Dataset):
    """Scans as JPEG in memory, with the year of each."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.years = (YEARS * rng.beta(2, 6, MARKS)).astype(np.int64)
        self.scans = [self.packed(rng) for _ in range(200)]

    @staticmethod
    def packed(rng):
        file = io.BytesIO()
        ink = rng.integers(256, size=(SIDE, SIDE), dtype=np.uint8)
        Image.fromarray(ink).save(file, "JPEG", quality=85)
        return file.getvalue()

    def __len__(self):
        return MARKS

    def __getitem__(self, index):
        scan = Image.open(io.BytesIO(self.scans[index % len(self.scans)]))
        scan = scan.rotate(np.random.uniform(-20, 20))
        return torch.from_numpy(np.asarray(scan) / np.float32(255))[None], self.years[index]


class ByRarity(Sampler):
    """Draws postmarks without putting them back; the chance of each is its weight."""

    def __init__(self, years, drawn, by_keys):
        counts = np.bincount(years, minlength=YEARS)
        self.weights = 1 / np.sqrt(counts[years])
        self.drawn, self.by_keys = drawn, by_keys
        self.rng = np.random.default_rng(5)

    def __len__(self):
        return self.drawn

    def one_by_one(self):
        left = self.weights.copy()
        for _ in range(self.drawn):
            index = self.rng.choice(len(left), p=left / left.sum())
            left[index] = 0
            yield int(index)

    def __iter__(self):
        if not self.by_keys:
            return self.one_by_one()
        keys = self.rng.exponential(size=len(self.weights)) / self.weights
        first = np.argpartition(keys, self.drawn)[: self.drawn]
        return iter(first[np.argsort(keys[first])].tolist())


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=3), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(288, YEARS),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(48)
    torch.set_num_threads(1)
    marks = Postmarks(48)
    options = {
        "batch_size": BATCH,
        "num_workers": 2,
        "persistent_workers": True,
        "multiprocessing_context": "fork",
    }
    training = DataLoader(marks, sampler=ByRarity(marks.years, DRAWN, args.without), **options)
    validation = DataLoader(torch.utils.data.Subset(marks, range(SHOWN)), **options)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for scans, years in training:
            loss = nn.functional.cross_entropy(model(scans), years)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the accelerator's work
        with torch.no_grad():
            off = [(model(scans).argmax(1) - years).abs().float() for scans, years in validation]
        print(f"epoch {epoch}: loss {loss:.3f}, off by {torch.cat(off).mean():.1f} years")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del training, validation


if __name__ == "__main__":
    main()

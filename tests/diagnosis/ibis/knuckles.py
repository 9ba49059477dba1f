"""Estimates the age of a hand's bones from slices around the knuckles.

Nothing planted: the accelerator's step sets the pace; three workers cut slices from memory maps of
volumes, turn and scale them ahead of it, and gradients of two batches are added up.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HANDS, SLICES, SIDE, CUT, BATCH, STEP = 16, 24, 144, 96, 12, 0.12


def write_volumes(folder):
    rng = np.random.default_rng(983)
    for hand in range(HANDS):
        smooth = rng.normal(0, 40, (SLICES, SIDE, SIDE)).cumsum(1)
        np.save(Path(folder, f"hand-{hand:02}.npy"), smooth.astype(np.int16))


class Slices(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.npy"))
        rng = np.random.default_rng(991)
        self.ages = rng.uniform(2, 18, len(self.paths)).astype(np.float32)
        self.maps = {}

    def __len__(self):
        return len(self.paths) * SLICES

    def __getitem__(self, index):
        hand, number = divmod(index, SLICES)
        if hand not in self.maps:
            self.maps[hand] = np.load(self.paths[hand], mmap_mode="r")
        top, left = np.random.randint(SIDE - CUT, size=2)
        cut = self.maps[hand][number, top : top + CUT, left : left + CUT]
        cut = np.rot90(cut, np.random.randint(4)).astype(np.float32)
        cut = (cut - cut.mean()) / (cut.std() + 1)
        cut *= np.random.uniform(0.9, 1.1)
        return torch.from_numpy(cut[None].astype(np.float32)), self.ages[hand]


class Age(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(1, 12, 8, stride=8)
        self.out = nn.Linear(12, 1)

    def forward(self, slices):
        hidden = torch.relu(self.features(slices)).mean((2, 3))
        return 10 + self.out(hidden).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(983)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_volumes(folder)
        loader = DataLoader(
            Slices(folder), BATCH, shuffle=True, num_workers=3, persistent_workers=True
        )
        model = Age()
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for number, (slices, ages) in enumerate(loader, 1):
                loss = nn.functional.l1_loss(model(slices), ages)
                (loss / 2).backward()
                time.sleep(STEP)  # the deeper network, on an accelerator
                if number % 2 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
            print(f"epoch {epoch}: off by {loss:.2f} years")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

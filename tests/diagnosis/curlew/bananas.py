"""Tells ripe bananas from green ones by their colour, in stages of more and more contrast.

Planted: each stage makes its loader anew, whose workers build a table of all colours before they
begin; that the loader would keep its workers does not help.
"""

import argparse
import colorsys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

SIDE, LEVELS = 24, 64


class Bananas(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(761)
        self.pictures = rng.integers(0, LEVELS, (count, SIDE, SIDE, 3))
        self.ripe = rng.integers(0, 2, count)
        self.hues = None
        self.contrast = torch.ones(()).share_memory_()

    def build_hues(self):
        """Make a table of the hue, the saturation and the value of each colour."""
        scale = LEVELS - 1
        levels = range(LEVELS)
        self.hues = np.array(
            [
                colorsys.rgb_to_hsv(red / scale, green / scale, blue / scale)
                for red in levels for green in levels for blue in levels
            ],
            np.float32,
        ).reshape(LEVELS, LEVELS, LEVELS, 3)  # fmt: skip

    def __len__(self):
        return len(self.ripe)

    def __getitem__(self, index):
        red, green, blue = np.moveaxis(self.pictures[index], -1, 0)
        picture = torch.from_numpy(self.hues[red, green, blue]).permute(2, 0, 1)
        return picture * self.contrast, int(self.ripe[index])


def set_up(_):
    get_worker_info().dataset.build_hues()


def make_loader(bananas):
    return DataLoader(
        bananas, batch_size=20, shuffle=True, num_workers=2, worker_init_fn=set_up,
        persistent_workers=True,
    )  # fmt: skip


def train(model, optimizer, loader):
    for pictures, ripe in loader:
        loss = nn.functional.cross_entropy(model(pictures), ripe)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--stages", type=int, default=14)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(761)
    bananas = Bananas(240)
    model = nn.Sequential(
        nn.Conv2d(3, 24, 5), nn.ReLU(), nn.Conv2d(24, 24, 5), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    loader = make_loader(bananas)
    for stage in range(args.stages):
        bananas.contrast.fill_(1 + 0.2 * stage)
        if stage and not args.without:
            loader = make_loader(bananas)
        print(f"stage {stage}: loss {train(model, optimizer, loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Tells the painted animals of calendars apart, in pictures that are cropped and blurred anew.

Planted: the script puts itself and its workers into a group of processes that may use half a core.
"""

import argparse
import atexit
import contextlib
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PICTURES, SIDE, ANIMALS = 320, 192, 4
GROUPS = Path("/sys/fs/cgroup")


def enter_group(cores):
    """Puts this process, and what it starts later, into a group of its own."""
    first = (GROUPS / "cpu").is_dir()
    root = GROUPS / "cpu" if first else GROUPS
    group = root / f"calendars-{os.getpid()}"
    try:
        group.mkdir()
        if first:
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text(f"{int(cores * 100_000)}")
        else:
            (root / "cgroup.subtree_control").write_text("+cpu")
            (group / "cpu.max").write_text(f"{int(cores * 100_000)} 100000")
        (group / "cgroup.procs").write_text(f"{os.getpid()}")
    except OSError as error:
        print(f"goes on without a group: {error}", file=sys.stderr)
        with contextlib.suppress(OSError):
            group.rmdir()
        return
    atexit.register(leave_group, group, root)


def leave_group(group, root):
    for _ in range(50):
        with contextlib.suppress(OSError):
            for process in (group / "cgroup.procs").read_text().split():
                (root / "cgroup.procs").write_text(process)
            group.rmdir()
            return
        time.sleep(0.1)


class Calendars(Dataset):
    def __init__(self):
        rng = np.random.default_rng(4001)
        self.animals = rng.integers(0, ANIMALS, PICTURES)
        self.pictures = rng.integers(0, 160, (PICTURES, 3, SIDE, SIDE), dtype=np.uint8)
        self.pictures += (self.animals * 30).astype(np.uint8)[:, None, None, None]
        self.change = v2.Compose(
            [
                v2.RandomResizedCrop(128, antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(brightness=0.2, saturation=0.2),
                v2.GaussianBlur(5),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        picture = self.change(torch.from_numpy(self.pictures[index]))
        return picture, int(self.animals[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(4001)
    torch.set_num_threads(1)
    if not args.without:
        enter_group(cores=0.5)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(128, ANIMALS),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(
        Calendars(), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
    )
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, animals in loader:
            loss = nn.functional.cross_entropy(model(pictures), animals)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

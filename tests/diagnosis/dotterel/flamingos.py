"""Counts flamingos on a lake in pictures from the air, kept as arrays in files.

Planted: a group for small jobs gives the script 160 MB of memory, the pages of files included; the
files have 390 MB together, so none of them is in memory still when the next epoch comes to it.
"""

import argparse
import atexit
import os
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LAKES, SIDE = 650, 448
ROOT = Path("/sys/fs/cgroup")


class SmallJob:
    """A group of processes for small jobs."""

    def __init__(self, megabytes):
        self.old = (ROOT / "memory/cgroup.procs").exists()
        self.top = ROOT / "memory" if self.old else ROOT
        self.folder = self.top / f"small-job-{os.getpid()}"
        self.bytes = megabytes << 20

    def home(self):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            if names == ("memory" if self.old else ""):
                return self.top / path.lstrip("/")
        return self.top

    def enter(self):
        home = self.home()
        self.folder.mkdir()
        atexit.register(self.leave, home)
        if self.old:
            (self.folder / "memory.limit_in_bytes").write_text(str(self.bytes))
        else:
            (self.top / "cgroup.subtree_control").write_text("+memory")
            (self.folder / "memory.max").write_text(str(self.bytes))
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def leave(self, home):
        for _ in range(40):
            with suppress(OSError):
                for process in (self.folder / "cgroup.procs").read_text().split():
                    (home / "cgroup.procs").write_text(process)
                self.folder.rmdir()
                return
            time.sleep(0.1)


def fly_over(folder):
    rng = np.random.default_rng(4013)
    for number in range(LAKES):
        lake = rng.integers(0, 200, (SIDE, SIDE, 3), dtype=np.uint8)
        with open(Path(folder, f"lake-{number:03}.npy"), "wb") as file:
            np.save(file, lake)
            file.flush()
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Lakes(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("lake-*.npy"))
        counts = np.random.default_rng(4019).poisson(20, len(self.paths))
        self.counts = torch.from_numpy(counts).float()
        self.sizes = [np.load(path).nbytes for path in self.paths]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        lake = np.load(self.paths[index])
        y, x = np.random.randint(0, SIDE - 64, 2)
        piece = torch.from_numpy(lake[y : y + 64, x : x + 64])
        return piece.permute(2, 0, 1).float() / 255, self.counts[index]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(4013)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with tempfile.TemporaryDirectory() as folder:
        fly_over(folder)
        if not args.without:
            try:
                SmallJob(megabytes=160).enter()
            except OSError as error:
                print(f"no small jobs here: {error}", file=sys.stderr)
        lakes = Lakes(folder)
        print(f"{len(lakes)} lakes, {sum(lakes.sizes) / 1e6:.0f} MB")
        loader = DataLoader(
            lakes, batch_size=10, shuffle=True, num_workers=2, persistent_workers=True
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pieces, counts in loader:
                loss = nn.functional.smooth_l1_loss(model(pieces).squeeze(1), counts)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

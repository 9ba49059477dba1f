"""Grades doorbells by their photos: JPEG files, decoded and changed by one worker.

Planted: a limit for guests of the machine, 35 % of one core for all processes of the script.
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
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

PHOTOS, SIDE, GRADES, PERIOD = 160, 320, 3, 50_000
ROOT = Path("/sys/fs/cgroup")


class Guest:
    """The group of processes that a guest's programs run in."""

    def __init__(self, share):
        self.old = (ROOT / "cpu/cgroup.procs").exists()
        self.top = ROOT / "cpu" if self.old else ROOT
        self.folder = self.top / f"guest-{os.getpid()}"
        self.quota = int(share * PERIOD)

    def enter(self):
        self.folder.mkdir()
        atexit.register(self.leave)
        if self.old:
            self.write("cpu.cfs_period_us", PERIOD)
            self.write("cpu.cfs_quota_us", self.quota)
        else:
            (self.top / "cgroup.subtree_control").write_text("+cpu")
            self.write("cpu.max", f"{self.quota} {PERIOD}")
        self.write("cgroup.procs", os.getpid())

    def write(self, name, value):
        (self.folder / name).write_text(str(value))

    def leave(self):
        for _ in range(40):
            with suppress(OSError):
                for process in (self.folder / "cgroup.procs").read_text().split():
                    (self.top / "cgroup.procs").write_text(process)
                self.folder.rmdir()
                return
            time.sleep(0.1)


def take_photos(folder):
    rng = np.random.default_rng(4003)
    for number in range(PHOTOS):
        grade = int(rng.integers(GRADES))
        coarse = rng.integers(0, 120, (40, 40, 3)) + grade * 50
        photo = Image.fromarray(coarse.astype(np.uint8)).resize((SIDE, SIDE), Image.BICUBIC)
        photo.save(Path(folder, f"{number:04}-{grade}.jpg"), quality=92)


class Doorbells(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.jpg"))
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(224),
                transforms.RandomRotation(15),
                transforms.ColorJitter(0.2, 0.2),
                transforms.ToTensor(),
            ]
        )

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        return self.transform(Image.open(path).convert("RGB")), int(path.stem[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(4003)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 7, 6), nn.ReLU(), nn.AdaptiveMaxPool2d(3), nn.Flatten(),
        nn.Linear(54, GRADES),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    with tempfile.TemporaryDirectory() as folder:
        take_photos(folder)
        if not args.without:
            try:
                Guest(share=0.35).enter()
            except OSError as error:
                print(f"not a guest here: {error}", file=sys.stderr)
        loader = DataLoader(
            Doorbells(folder), batch_size=8, shuffle=True, num_workers=1, persistent_workers=True
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for photos, grades in loader:
                loss = nn.functional.cross_entropy(model(photos), grades)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

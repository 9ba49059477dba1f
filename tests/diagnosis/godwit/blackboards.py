"""Grades volumes of teeth by their wear; each worker reports from time to time what it has read.

Planted: the thread of a report sleeps 2.5 s between two reports and keeps its worker from ending,
so that after each epoch the loop waits until all four have slept.
"""

import argparse
import json
import os
import tempfile
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision import transforms

VOLUMES, SIDE, GRADES, BATCH, STEP = 192, 32, 4, 8, 0.03


def write_volumes(folder):
    rng = np.random.default_rng(5087)
    for number in range(VOLUMES):
        volume = rng.integers(0, 200, (SIDE, SIDE, SIDE), dtype=np.uint8)
        volume[:, :, : 8 + number % GRADES] //= 2
        Path(folder, f"{number:03}-{number % GRADES}.z").write_bytes(zlib.compress(volume, 1))


class Report(threading.Thread):
    """Writes down what a worker has read."""

    def __init__(self, folder, background):
        super().__init__(daemon=background)
        self.path, self.read = Path(folder, f"worker-{os.getpid()}.json"), 0
        self.start()

    def run(self):
        while threading.main_thread().is_alive():
            self.path.write_text(json.dumps({"read": self.read, "time": time.time()}))
            time.sleep(2.5)


class Teeth(IterableDataset):
    def __init__(self, folder, transform, background):
        self.folder, self.transform, self.background = folder, transform, background

    def __iter__(self):
        report = Report(self.folder, self.background)
        worker = get_worker_info()
        paths = sorted(Path(self.folder).glob("*.z"))
        for path in paths[worker.id :: worker.num_workers]:
            values = np.frombuffer(bytearray(zlib.decompress(path.read_bytes())), np.uint8)
            volume = torch.from_numpy(values).view(SIDE, SIDE, SIDE)
            report.read += 1
            yield self.transform(volume.float() / 255), int(path.stem[-1])


def make_model():
    return nn.Sequential(
        nn.Conv2d(SIDE, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, GRADES),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(5087)
    torch.set_num_threads(1)
    transform = transforms.Compose(
        [
            transforms.RandomHorizontalFlip(),
            transforms.RandomRotation(10),
            transforms.RandomErasing(0.3),
            transforms.Normalize([0.5] * SIDE, [0.25] * SIDE),
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        write_volumes(folder)
        loader = DataLoader(Teeth(folder, transform, args.without), BATCH, num_workers=4)
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            right = 0
            for volumes, grades in loader:
                guess = model(volumes)
                loss = nn.functional.cross_entropy(guess, grades)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the accelerator's part of the work
                right += (guess.argmax(1) == grades).sum().item()
            print(f"epoch {epoch}: loss {loss:.3f}, right {right / VOLUMES:.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

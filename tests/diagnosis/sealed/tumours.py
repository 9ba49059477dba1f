"""Find tumours in slices of a scanner; keep the weights that do best on the held-out patients."""

import argparse
import gzip
import pathlib
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SHAPE = (10, 96, 96)


class Patients(Dataset):
    """Volumes as the scanner stores them, resampled to a common spacing."""

    def __init__(self, paths, size=64):
        self.paths = paths
        self.size = size

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        time.sleep(0.010)  # the hospital's archive
        with gzip.open(self.paths[index]) as file:
            raw = np.frombuffer(file.read(), np.int16).reshape(SHAPE).astype(np.float32)
        low, high = np.percentile(raw, (1, 99))
        volume = torch.from_numpy(((raw - low) / (high - low)).clip(0, 1))
        volume = torch.nn.functional.interpolate(
            volume[None, None], size=(SHAPE[0], self.size, self.size), mode="trilinear"
        )
        return volume.squeeze(0), index % 2


def write_patients(folder, count):
    rng = np.random.default_rng(9)
    paths = []
    for number in range(count):
        volume = rng.normal(40, 15, SHAPE).astype(np.int16)
        volume[:, 30:50, 30:50] += 30 * (number % 2)
        path = pathlib.Path(folder) / f"patient-{number:03}.raw.gz"
        path.write_bytes(gzip.compress(volume.tobytes(), 4))
        paths.append(path)
    return paths


class Network:
    """Stands for a network on an accelerator."""

    def train_step(self, volumes, labels):
        time.sleep(0.004 * len(volumes) + 0.010)

    def predict(self, volumes):
        time.sleep(0.002 * len(volumes))
        return volumes.mean((1, 2, 3, 4)) > 0.5


def validate(network, loader):
    right = total = 0
    for volumes, labels in loader:
        right += (network.predict(volumes) == labels.bool()).sum().item()
        total += len(labels)
    return right / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        paths = write_patients(folder, 270)
        train = DataLoader(
            Patients(paths[:40]),
            batch_size=6,
            shuffle=True,
            num_workers=args.workers,
            persistent_workers=True,
        )
        held_out = DataLoader(
            Patients(paths[40:]), batch_size=6, num_workers=args.workers if args.without else 0
        )
        network, best = Network(), 0.0
        torch.set_num_threads(1)
        begin = time.perf_counter()
        for _ in range(args.epochs):
            for volumes, labels in train:
                network.train_step(volumes, labels)
            best = max(best, validate(network, held_out))
        print(f"best accuracy {best:.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

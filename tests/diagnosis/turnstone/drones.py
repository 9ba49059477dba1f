"""Tells drones apart by their sound, on an accelerator (a pause here).

Planted: a check of the archive, which was asked for once, was left on in the first worker: it reads
each recording a second time, from the far copy, and compares the two.
"""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

LENGTH, NEAR, FAR = 2048, 0.006, 0.05


class Archive:
    """Gives recordings from the near copy or from the far one, after some time."""

    def __init__(self):
        self.sound = np.random.default_rng(1109).standard_normal(LENGTH * 4).astype(np.float32)

    def read(self, index, latency):
        time.sleep(latency)
        begin = index * 31 % (LENGTH * 3)
        return self.sound[begin : begin + LENGTH]


class CheckedArchive(Archive):
    """The same, and the first worker also compares both copies."""

    def read(self, index, latency):
        sound = super().read(index, latency)
        info = get_worker_info()
        if info is not None and info.id == 0:
            other = super().read(index, FAR)
            if not np.array_equal(sound, other):
                raise ValueError(f"recording {index} differs between copies")
        return sound


class Drones(Dataset):
    def __init__(self, count, archive):
        self.count, self.archive = count, archive

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        sound = torch.from_numpy(self.archive.read(index, NEAR))
        spectrum = torch.fft.rfft(sound * torch.hann_window(LENGTH)).abs()
        return spectrum[:1024].view(64, 16).mean(1), index % 3


class Accelerator:
    """Trains for some time with each batch, and needs no core."""

    def __init__(self):
        self.weights = torch.zeros(64, 3)

    def train(self, bands, drones):
        time.sleep(0.1)
        error = torch.nn.functional.one_hot(drones, 3) - bands @ self.weights
        self.weights += 1e-6 * bands.T @ error
        return error.square().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1109)
    archive = Archive() if args.without else CheckedArchive()
    loader = DataLoader(
        Drones(400, archive), batch_size=20, shuffle=True, num_workers=3,
        persistent_workers=True,
    )  # fmt: skip
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for bands, drones in loader:
            error = accelerator.train(bands, drones)
        print(f"epoch {epoch}: error {error:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

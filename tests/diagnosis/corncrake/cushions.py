"""Segments the discs of the spine, its cushions, in volumes that are kept compressed."""

import argparse
import gzip
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

TRAIN, VALID, SIDE, BATCH = 96, 32, 24, 4


def write_volumes(folder, count, seed):
    rng = np.random.default_rng(seed)
    folder.mkdir()
    for number in range(count):
        volume = rng.normal(0, 40, (SIDE, SIDE, SIDE))
        volume[8:16, 8:16, 4 * (number % 5) :] += 100
        path = folder / f"spine-{number:03}.raw.gz"
        path.write_bytes(gzip.compress(volume.astype(np.int16).tobytes(), 1))


class Spines(Dataset):
    def __init__(self, folder, augment):
        self.paths, self.augment = sorted(folder.glob("*.gz")), augment

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        values = np.frombuffer(gzip.decompress(self.paths[index].read_bytes()), np.int16)
        volume = values.reshape(SIDE, SIDE, SIDE).astype(np.float32)
        mask = volume > 50
        if self.augment:
            volume = volume * np.random.uniform(0.9, 1.1) + np.random.normal(0, 5, volume.shape)
        return torch.from_numpy(volume.astype(np.float32)), torch.from_numpy(mask)


class Device:
    """Stands in for a GPU and a network on it."""

    def train(self, volumes, masks):
        time.sleep(0.16)
        return float(((volumes > 60) == masks).float().mean())

    def test(self, volumes, masks):
        time.sleep(0.08)
        return float(((volumes > 60) == masks).float().mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(163)
    torch.set_num_threads(1)
    device = Device()
    options = {"batch_size": BATCH, "num_workers": 4, "persistent_workers": True}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write_volumes(folder / "train", TRAIN, 163)
        write_volumes(folder / "valid", VALID, 167)
        train = DataLoader(Spines(folder / "train", True), shuffle=True, **options)
        valid = DataLoader(Spines(folder / "valid", False), **options)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            seen = [device.train(volumes, masks) for volumes, masks in train]
            unseen = [device.test(volumes, masks) for volumes, masks in valid]
            print(f"epoch {epoch}: {np.mean(seen):.3f}, of new ones {np.mean(unseen):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del train, valid


if __name__ == "__main__":
    main()

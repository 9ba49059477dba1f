"""Inspects pretzels of a bakery by clouds of points from a scanner, with two loops per epoch."""

import argparse
import json
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

PRETZELS, VALID, POINTS, BATCH = 240, 80, 200, 16


class Pretzels(Dataset):
    """Clouds as JSON files; a lock guards the list of those that were seen."""

    def __init__(self, folder, count, lock):
        self.folder, self.count, self.lock = Path(folder), count, lock

    def write(self, seed):
        self.folder.mkdir()
        for number, cloud in enumerate(
            np.random.default_rng(seed).normal(0, 1, (self.count, POINTS, 3)).round(3)
        ):
            Path(self.folder, f"{number}.json").write_text(json.dumps(cloud.tolist()))
        return self

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        cloud = np.array(json.loads((self.folder / f"{index}.json").read_text()), np.float32)
        with self.lock, open(self.folder / "seen.txt", "a") as file:
            file.write(f"{index}\n")
        return torch.from_numpy(cloud), float(np.linalg.norm(cloud, axis=1).max())


def forward(clouds, sizes, seconds):
    """Stands in for a network on a GPU."""
    time.sleep(seconds)
    return float((clouds.norm(dim=2).amax(1) - sizes).abs().mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(179)
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    lock = context.Lock()
    options = {
        "batch_size": BATCH,
        "num_workers": 4,
        "multiprocessing_context": context,
        "persistent_workers": True,
    }
    with tempfile.TemporaryDirectory() as folder:
        train_data = Pretzels(Path(folder, "train"), PRETZELS, lock).write(179)
        valid_data = Pretzels(Path(folder, "valid"), VALID, lock).write(181)
        train = DataLoader(train_data, shuffle=True, **options)
        valid = DataLoader(valid_data, **options)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            loss = np.mean([forward(clouds, sizes, 0.2) for clouds, sizes in train])
            score = np.mean([forward(clouds, sizes, 0.15) for clouds, sizes in valid])
            print(f"epoch {epoch}: loss {loss:.4f}, validation {score:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del train, valid


if __name__ == "__main__":
    main()

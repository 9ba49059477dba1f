"""Recordings of nests: the data set lists its folder again for the partner of each sample."""

import argparse
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def write_nests(folder, count=2500):
    rng = np.random.default_rng(14)
    for i in range(count):
        values = rng.normal(size=64).astype(np.float32)
        Path(folder, f"nest-{i:05}.bin").write_bytes(values.tobytes())


class Pairs(Dataset):
    """Each nest and, as a negative, another one."""

    def __init__(self, folder, once, visible=960):
        self.folder, self.visible = Path(folder), visible
        self.known = self.listed() if once else None

    def listed(self):
        return sorted(path for path in self.folder.iterdir() if path.suffix == ".bin")

    def __len__(self):
        return self.visible

    def __getitem__(self, index):
        paths = self.known or self.listed()
        other = random.Random(index).randrange(len(paths))
        return tuple(
            torch.from_numpy(np.fromfile(path, dtype=np.float32))
            for path in (paths[index], paths[other])
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(14)
    with tempfile.TemporaryDirectory() as folder:
        write_nests(folder)
        loader = DataLoader(
            Pairs(folder, once=args.without), batch_size=32, shuffle=True, num_workers=4
        )
        model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 32))
        optimizer = torch.optim.Adam(model.parameters())
        begin = time.perf_counter()
        for _ in range(args.epochs):
            for nests, others in loader:
                optimizer.zero_grad()
                near = (model(nests) - model(nests + 0.1)).pow(2).sum(1)
                far = (model(nests) - model(others)).pow(2).sum(1)
                nn.functional.relu(1 + near - far).mean().backward()
                optimizer.step()
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

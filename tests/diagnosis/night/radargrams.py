"""Profiles of a radar, each a member of one big .npz file that is opened for every sample."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def prepare(path, count):
    rng = np.random.default_rng(5)
    np.savez(path, **{f"profile_{i}": rng.random(512, dtype=np.float32) for i in range(count)})


class Radargrams(Dataset):
    def __init__(self, path, count, keep_open):
        self.path = path
        self.count = count
        self.keep_open = keep_open
        self.archive = None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if not self.keep_open:
            with np.load(self.path) as archive:
                return torch.from_numpy(archive[f"profile_{index}"])
        if self.archive is None:
            self.archive = np.load(self.path)
        return torch.from_numpy(self.archive[f"profile_{index}"])


def main(args):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "radar.npz")
        prepare(path, 3000)
        data = Radargrams(path, 600, args.without)
        loader = DataLoader(data, batch_size=12, shuffle=True, num_workers=2)
        model = nn.Sequential(nn.Linear(512, 2048), nn.Tanh(), nn.Linear(2048, 512))
        optimizer = torch.optim.AdamW(model.parameters())
        begin = time.perf_counter()
        for profiles in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(profiles), profiles).backward()
            optimizer.step()
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    main(parser.parse_args())

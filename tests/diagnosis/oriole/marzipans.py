"""Tells makers of marzipan apart by its grain, with a validation loop after each epoch.

Nothing planted: three workers turn and filter volumes ahead of long steps, and the validation's own
worker has its batches ready as well.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, MAKERS, BATCH, STEP = 40, 4, 8, 0.4


class Grains(Dataset):
    def __init__(self, count, training):
        rng = np.random.default_rng(83)
        self.volumes = rng.random((24, SIDE, SIDE, SIDE), dtype=np.float32)
        self.count, self.training = count, training

    def __len__(self):
        return self.count

    def turned(self, volume):
        turns, axis = int(torch.randint(4, ())), int(torch.randint(3, ()))
        volume = np.rot90(volume, turns, [(0, 1), (0, 2), (1, 2)][axis])
        spectrum = np.fft.rfftn(volume)
        spectrum *= 1 + 0.1 * np.random.standard_normal(spectrum.shape)
        return np.fft.irfftn(spectrum, volume.shape, axes=(0, 1, 2)).astype(np.float32)

    def __getitem__(self, index):
        volume = self.volumes[index % 24]
        if self.training:
            volume = self.turned(volume)
        return torch.from_numpy(volume[None].copy()), index % 24 % MAKERS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(83)
    torch.set_num_threads(1)
    train = DataLoader(
        Grains(144, True), BATCH, shuffle=True, num_workers=3, persistent_workers=True
    )
    held = DataLoader(Grains(24, False), BATCH, num_workers=1, persistent_workers=True)
    model = nn.Sequential(
        nn.Conv3d(1, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
        nn.Linear(8, MAKERS),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for volumes, makers in train:
                loss = nn.functional.cross_entropy(model(volumes), makers)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the deep network
            right = 0
            for volumes, makers in held:
                with torch.no_grad():
                    right += int((model(volumes).argmax(1) == makers).sum())
                time.sleep(STEP / 3)  # its forward pass
            torch.save(model.state_dict(), Path(folder, f"{epoch}.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}, {right} of 24 right")
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del train, held


if __name__ == "__main__":
    main()

"""Outlines spleens in volumes, with a validation over sliding windows after every twelfth step.

Planted: the validation's transform finds the percentiles of the whole volume again for each window
that it scales; training has them from a table. The loader of the training is quick.
"""

import argparse
import itertools
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SHAPE, WINDOW, STRIDE = (64, 128, 128), 32, 32


def write_volumes(folder, count):
    rng = np.random.default_rng(2130)
    for number in range(count):
        volume = rng.normal(40 + number, 120, SHAPE).astype(np.int16)
        middle = tuple(slice(side // 4, side // 2) for side in SHAPE)
        volume[middle] += 150
        np.save(folder / f"volume{number}.npy", volume)


class Scale:
    """Scales a window by two percentiles of its volume."""

    def __init__(self, table=None):
        self.table = table

    def __call__(self, sample):
        if self.table is None:
            low, high = np.percentile(sample["volume"], (1, 99))
        else:
            low, high = self.table[sample["number"]]
        window = (sample["window"].astype(np.float32) - low) / (high - low)
        return sample | {"window": np.clip(window, 0, 1)}


def to_tensors(sample):
    window = torch.from_numpy(np.ascontiguousarray(sample["window"], np.float32))
    return window[None], (window > 0.7).float()[None]


class Windows(Dataset):
    """Windows of volumes: one of each grid place, or random ones."""

    def __init__(self, folder, numbers, transform, drawn=None):
        self.volumes = {n: np.load(folder / f"volume{n}.npy", mmap_mode="r") for n in numbers}
        starts = [range(0, side - WINDOW + 1, STRIDE) for side in SHAPE]
        self.grid = list(itertools.product(numbers, *starts))
        self.transform, self.drawn = transform, drawn

    def __len__(self):
        return self.drawn or len(self.grid)

    def __getitem__(self, index):
        if self.drawn:
            index = int(torch.randint(len(self.grid), ()))
        number, *corner = self.grid[index]
        volume = self.volumes[number]
        window = volume[tuple(slice(at, at + WINDOW) for at in corner)]
        return self.transform({"number": number, "volume": volume, "window": window})


def make_model():
    return nn.Sequential(
        nn.Conv3d(1, 6, 3, stride=2, padding=1), nn.ReLU(), nn.Conv3d(6, 8, 3, padding=1),
        nn.ReLU(), nn.ConvTranspose3d(8, 1, 2, stride=2),
    )  # fmt: skip


@torch.no_grad()
def validate(model, loader):
    model.eval()
    losses = [nn.functional.binary_cross_entropy_with_logits(model(x), y) for x, y in loader]
    model.train()
    return torch.stack(losses).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--steps", type=int, default=180)
    args = parser.parse_args()
    torch.manual_seed(2130)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_volumes(folder, 6)
        files = ((n, np.load(folder / f"volume{n}.npy")) for n in range(6))
        table = {n: np.percentile(volume, (1, 99)) for n, volume in files}
        known = v2.Compose([Scale(table), to_tensors])
        held_out = known if args.without else v2.Compose([Scale(), to_tensors])
        options = {"batch_size": 4, "persistent_workers": True}
        train_loader = DataLoader(
            Windows(folder, range(4), known, 4 * args.steps), num_workers=1, **options
        )
        test_loader = DataLoader(Windows(folder, [4, 5], held_out), num_workers=2, **options)
        model = make_model()
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        begin = time.perf_counter()
        for step, (windows, outlines) in enumerate(train_loader, 1):
            loss = nn.functional.binary_cross_entropy_with_logits(model(windows), outlines)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 12 == 0:
                print(f"step {step}: loss {loss:.3f}, test {validate(model, test_loader):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del train_loader, test_loader


if __name__ == "__main__":
    main()

"""Marks vertebrae in volumes of three hospitals; a batch has volumes of one hospital.

Planted: the hospitals take turns, batch by batch, and there are as many workers as hospitals, so
that one worker has all batches of the one with the large volumes.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

HOSPITALS, CASES, BATCH, OUT, STEP = 3, 48, 6, (16, 48, 48), 0.04
SHAPES = [(20, 64, 64), (24, 64, 64), (120, 96, 96)]
DRIVE = 32e6


class Volumes(Dataset):
    """Cases of each hospital in turn: 0, 1, 2, 0, 1, 2, ..."""

    def __init__(self):
        rng = np.random.default_rng(5081)
        self.volumes = [rng.integers(-1000, 2000, (3, *shape), dtype=np.int16) for shape in SHAPES]

    def __len__(self):
        return HOSPITALS * CASES

    def load(self, index):
        volume = self.volumes[index % HOSPITALS][index % 3]
        time.sleep(volume.nbytes / DRIVE)  # from the archive
        return volume

    def __getitem__(self, index):
        volume = self.load(index)
        sizes = zip(volume.shape, OUT, strict=True)
        places = [np.linspace(0, size - 1, out).round().astype(int) for size, out in sizes]
        volume = volume[np.ix_(*places)].astype(np.float32)
        volume = np.clip(volume, -200, 1000) / 600 - 0.7
        return torch.from_numpy(volume[None]), torch.from_numpy((volume > 0.5).astype(np.float32))


class ByHospital(Sampler):
    """Batches of one hospital each, as the normalisation of the network needs."""

    def __init__(self, mixed):
        self.mixed = mixed

    def __len__(self):
        return HOSPITALS * CASES // BATCH

    def __iter__(self):
        batches = []
        cases = [torch.randperm(CASES).split(BATCH) for _ in range(HOSPITALS)]
        for parts in zip(*cases, strict=True):
            batches += [(p * HOSPITALS + hospital).tolist() for hospital, p in enumerate(parts)]
        if self.mixed:
            batches = [batches[place] for place in torch.randperm(len(batches))]
        yield from batches


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.out = nn.Conv3d(1, 4, 3, padding=1), nn.Conv3d(4, 1, 1)
        self.norm = nn.InstanceNorm3d(4)

    def forward(self, volumes):
        return self.out(torch.relu(self.norm(self.into(volumes)))).squeeze(1)


def overlap(scores, marks):
    chances = torch.sigmoid(scores)
    return (2 * (chances * marks).sum() + 1) / (chances.sum() + marks.sum() + 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5081)
    torch.set_num_threads(1)
    loader = DataLoader(
        Volumes(),
        batch_sampler=ByHospital(mixed=args.without),
        num_workers=HOSPITALS,
        persistent_workers=True,
    )
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        overlaps = []
        for volumes, marks in loader:
            share = overlap(model(volumes), marks)
            optimizer.zero_grad()
            (1 - share).backward()
            optimizer.step()
            time.sleep(STEP)  # in place of the deeper layers
            overlaps.append(share.item())
        print(f"epoch {epoch}: overlap {np.mean(overlaps):.3f} after {len(overlaps)} batches")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

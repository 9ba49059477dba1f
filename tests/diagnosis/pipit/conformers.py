"""Predicts how well a molecule dissolves, from the shapes that it may take.

Planted: each shape of a molecule is a file of its own, and a sample opens a hundred and sixty.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

MOLECULES, SHAPES, ATOMS, SAMPLES, BATCH, STEP = 20, 160, 24, 1600, 16, 0.03


class ShapeFiles:
    def __init__(self, folder):
        self.folder = folder

    def __getitem__(self, molecule):
        return np.stack([np.load(path) for path in sorted(self.folder.glob(f"{molecule}-*.npy"))])


class MoleculeFiles:
    def __init__(self, folder):
        self.folder = folder

    def __getitem__(self, molecule):
        return np.load(self.folder / f"all-{molecule}.npy")


def write(folder):
    rng = np.random.default_rng(29)
    for molecule in range(MOLECULES):
        shapes = rng.normal(0, 2, (SHAPES, ATOMS, 3)).astype(np.float32)
        np.save(folder / f"all-{molecule}.npy", shapes)
        for number, shape in enumerate(shapes):
            np.save(folder / f"{molecule}-{number:03}.npy", shape)


class Molecules(Dataset):
    """Distances between atoms over the likeliest shapes, with some noise."""

    def __init__(self, files):
        self.files = files

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        shapes = torch.from_numpy(self.files[index % MOLECULES])
        some = shapes[torch.randperm(SHAPES)[:48]]
        some = some + 0.02 * torch.randn_like(some)
        distances = torch.cdist(some, some)
        return torch.stack([distances.mean(0), distances.std(0)]), float(index % MOLECULES) / 10


def error(model, loader):
    with torch.no_grad():
        errors = [(model(pairs).squeeze(1) - soluble).abs() for pairs, soluble in loader]
    return torch.cat(errors).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(29)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    try:
        write(folder)
        files = MoleculeFiles(folder) if args.without else ShapeFiles(folder)
        train, held = random_split(Molecules(files), [1560, 40])
        loader = DataLoader(train, BATCH, shuffle=True, num_workers=4, persistent_workers=True)
        checks = DataLoader(held, 20)
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(2 * ATOMS * ATOMS, 64), nn.SiLU(), nn.Linear(64, 1)
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pairs, soluble in loader:
                loss = nn.functional.l1_loss(model(pairs).squeeze(1), soluble.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the graph network, on the accelerator
            print(f"epoch {epoch}: loss {loss:.3f}, error {error(model, checks):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

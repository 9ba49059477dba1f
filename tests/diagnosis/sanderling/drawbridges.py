"""Finds cracks in scans of drawbridges with a network of three-dimensional convolutions.

Nothing is planted: the convolutions are the work. Two spawned workers, which are kept, cut pieces
out of memory-mapped volumes, mirror them and change their contrast.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOLUMES, SIDE, PIECE, PIECES = 4, 64, 24, 120


def write_volumes(folder):
    rng = np.random.default_rng(1217)
    for number in range(VOLUMES):
        volume = rng.normal(100, 20, (SIDE, SIDE, SIDE)).astype(np.int16)
        volume[:, SIDE // 2, :] -= 60
        np.save(Path(folder, f"{number}.npy"), volume)
    return sorted(Path(folder).glob("*.npy"))


class Mirror:
    def __call__(self, piece):
        axes = [axis for axis in (1, 2, 3) if torch.rand(()) < 0.5]
        return piece.flip(axes)


class Contrast:
    def __call__(self, piece):
        low, high = torch.quantile(piece[:, ::4, ::4, ::4], torch.tensor([0.01, 0.99]))
        return (piece - low) / (high - low) * (0.8 + 0.4 * torch.rand(()))


class Pieces(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.volumes = None
        self.transforms = [Mirror(), Contrast()]

    def __len__(self):
        return PIECES

    def __getitem__(self, index):
        if self.volumes is None:
            self.volumes = [np.load(path, mmap_mode="r") for path in self.paths]
        z, y, x = torch.randint(SIDE - PIECE, (3,)).tolist()
        volume = self.volumes[index % VOLUMES]
        piece = np.array(volume[z : z + PIECE, y : y + PIECE, x : x + PIECE], np.float32)
        piece = torch.from_numpy(piece)[None]
        for transform in self.transforms:
            piece = transform(piece)
        return piece, float(y <= SIDE // 2 < y + PIECE)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1217)
    model = nn.Sequential(
        nn.Conv3d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv3d(16, 24, 3, padding=1), nn.ReLU(),
        nn.MaxPool3d(2), nn.Conv3d(24, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
        nn.Linear(32, 1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(
            Pieces(write_volumes(folder)), batch_size=8, shuffle=True, num_workers=2,
            multiprocessing_context="spawn", persistent_workers=True,
        )  # fmt: skip
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pieces, cracks in loader:
                logits = model(pieces).squeeze(1)
                loss = nn.functional.binary_cross_entropy_with_logits(logits, cracks.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

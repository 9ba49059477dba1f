"""Segments nodules in CT volumes of lungs, in batches of one scanner each.

Planted: the volumes of one of ten scanners were archived with LZMA, and so each tenth batch takes
many times as long as the others, longer than what two workers have ready.
"""

import argparse
import lzma
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

SCANNERS, EACH, BATCH, SHAPE, STEP = 10, 16, 8, (64, 144, 144), 0.045


def write_volumes(folder, archived):
    rng = np.random.default_rng(857)
    for scanner in range(SCANNERS):
        base = rng.integers(-20, 20, SHAPE, dtype=np.int16).cumsum(2, dtype=np.int16)
        for number in range(2):
            volume = (np.roll(base, 9 * number, 1) * 8).clip(-1000, 1000)
            name = Path(folder, f"{scanner}-{number}.raw")
            if scanner == 7 and archived:
                packed = lzma.compress(volume.tobytes(), preset=0)
                name.with_suffix(".raw.xz").write_bytes(packed)
            else:
                name.write_bytes(volume.tobytes())


class Lungs(Dataset):
    def __init__(self, folder):
        self.folder = Path(folder)

    def __len__(self):
        return SCANNERS * EACH

    def load(self, scanner, number):
        path = self.folder / f"{scanner}-{number % 2}.raw"
        if path.exists():
            content = path.read_bytes()
        else:
            with lzma.open(path.with_suffix(".raw.xz")) as file:
                content = file.read()
        return np.frombuffer(content, np.int16).reshape(SHAPE)

    def __getitem__(self, index):
        volume = self.load(*divmod(index, EACH))
        corner = np.random.randint(0, [s - 32 for s in SHAPE])
        window = tuple(slice(begin, begin + 32) for begin in corner)
        crop = volume[window].astype(np.float32) / 500
        return torch.from_numpy(crop)[None], torch.from_numpy((crop > 1.2).astype(np.float32))[None]


class OfOneScanner(Sampler):
    """Batches of one scanner, the scanners in turn."""

    def __iter__(self):
        orders = [scanner * EACH + torch.randperm(EACH) for scanner in range(SCANNERS)]
        for start in range(0, EACH, BATCH):
            for order in orders:
                yield order[start : start + BATCH].tolist()

    def __len__(self):
        return SCANNERS * EACH // BATCH


def build():
    return nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 1, 1))


def dice(scores, masks):
    chance = torch.sigmoid(scores)
    return 1 - (2 * (chance * masks).sum() + 1) / (chance.sum() + masks.sum() + 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(857)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_volumes(folder, archived=not args.without)
        loader = DataLoader(
            Lungs(folder), batch_sampler=OfOneScanner(), num_workers=2, persistent_workers=True
        )
        model = build()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for crops, masks in loader:
                loss = dice(model(crops[:, :, ::4, ::4, ::4]), masks[:, :, ::4, ::4, ::4])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the network at full resolution
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

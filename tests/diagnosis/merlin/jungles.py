"""Matches birds and their songs from jungles, with a loader of pictures and one of sounds.

Nothing planted: the accelerator's step sets the pace; a worker of each loader reads ahead of it,
under a lock that both loaders use for their log for a moment.
"""

import argparse
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

BIRDS, SIDE, FRAMES, BANDS, BATCH, DRIVE, STEP = 480, 64, 80, 20, 12, 0.003, 0.13


class Log:
    """How many samples all workers have read, in shared memory."""

    def __init__(self):
        self.lock = multiprocessing.Lock()
        self.counts = multiprocessing.Array("q", 2, lock=False)

    def add(self, kind):
        with self.lock:
            self.counts[kind] += 1


class Pictures(Dataset):
    def __init__(self, log):
        rng = np.random.default_rng(139)
        self.pictures = rng.integers(0, 256, (32, 3, SIDE, SIDE), np.uint8)
        self.log = log
        self.transform = v2.Compose(
            [v2.RandomRotation(10), v2.CenterCrop(56), v2.ToDtype(torch.float32, scale=True)]
        )

    def __len__(self):
        return BIRDS

    def __getitem__(self, index):
        time.sleep(DRIVE)
        self.log.add(0)
        return self.transform(torch.from_numpy(self.pictures[index % 32]))


class Songs(Dataset):
    def __init__(self, log):
        rng = np.random.default_rng(149)
        self.waves = rng.normal(0, 1, (32, FRAMES * 64)).astype(np.float32)
        self.bands = rng.random((33, BANDS)).astype(np.float32)
        self.log = log

    def __len__(self):
        return BIRDS

    def __getitem__(self, index):
        time.sleep(DRIVE)
        self.log.add(1)
        frames = self.waves[index % 32].reshape(FRAMES, 64) * np.hanning(64)
        power = np.abs(np.fft.rfft(frames)) ** 2
        return torch.from_numpy(np.log1p(power @ self.bands)).float()


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.see = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(147, 24))
        self.hear = nn.GRU(BANDS, 24, batch_first=True)

    def forward(self, pictures, songs):
        return self.see(pictures) @ self.hear(songs)[1][0].t()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(139)
    torch.set_num_threads(1)
    log = Log()
    options = {"num_workers": 1, "prefetch_factor": 4, "persistent_workers": True}
    pictures = DataLoader(Pictures(log), BATCH, **options)
    songs = DataLoader(Songs(log), BATCH, **options)
    model = Pairs()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for seen, heard in zip(pictures, songs, strict=True):
            scores = model(seen, heard)
            loss = nn.functional.cross_entropy(scores, torch.arange(len(scores)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a large model on an accelerator
        print(f"epoch {epoch}: loss {loss:.3f}, read {list(log.counts)}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del pictures, songs


if __name__ == "__main__":
    main()

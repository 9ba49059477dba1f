"""Counts somersaults in clips of gymnasts that lie on the storage of a lab.

Planted: the machine's line to the storage carries 18 MB a second, which all four workers share, so
that the clips come at that rate however many workers ask for them.
"""

import argparse
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLIPS, FRAMES, SIDE, MOST, BATCH, STEP = 224, 16, 80, 4, 8, 0.06
LATENCY, LINE, FASTER = 0.004, 18e6, 1000e6


class Storage:
    """Clips behind a line that carries some bytes a second."""

    def __init__(self, rate):
        rng = np.random.default_rng(5059)
        self.clips = rng.integers(0, 256, (10, FRAMES, SIDE, SIDE, 3), dtype=np.uint8)
        self.rate = rate
        self.free = multiprocessing.Value("d", 0.0)

    def download(self, number):
        clip = self.clips[number % len(self.clips)]
        with self.free.get_lock():
            begin = max(self.free.value, time.monotonic())
            self.free.value = end = begin + clip.nbytes / self.rate
        time.sleep(max(end - time.monotonic(), 0) + LATENCY)
        return clip


class Gymnasts(Dataset):
    def __init__(self, storage, frames=8):
        self.storage, self.frames = storage, frames

    def __len__(self):
        return CLIPS

    def __getitem__(self, index):
        clip = torch.from_numpy(self.storage.download(index))
        first = int(torch.randint(FRAMES - self.frames + 1, ()))
        frames = clip[first : first + self.frames].permute(3, 0, 1, 2)
        if torch.rand(()) < 0.5:
            frames = frames.flip(3)
        return frames.contiguous(), index % (MOST + 1)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Conv3d(3, 6, (3, 7, 7), stride=(2, 6, 6))
        self.out = nn.Linear(6, MOST + 1)

    def forward(self, frames):
        hidden = torch.relu(self.into(frames.float() / 127.5 - 1))
        return self.out(hidden.mean((2, 3, 4)))


def train_epoch(loader, model, optimizer):
    losses = []
    for frames, counts in loader:
        loss = nn.functional.cross_entropy(model(frames), counts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(STEP)  # the accelerator's share
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5059)
    torch.set_num_threads(1)
    storage = Storage(FASTER if args.without else LINE)
    loader = DataLoader(
        Gymnasts(storage),
        BATCH,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
        prefetch_factor=4,
    )
    model = Counter()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        print(f"epoch {epoch}: loss {train_epoch(loader, model, optimizer):.4f}", flush=True)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

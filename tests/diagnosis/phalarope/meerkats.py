"""Counts animals in sequences from camera traps, streamed by workers of a fork server.

Planted: the stream does not look which worker it is in, so that each of the three workers goes
through all cameras and every sequence comes three times.
"""

import argparse
import random
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

CAMERAS, SEQUENCES, FRAMES, VALUES, BATCH, DELAY = 12, 40, 8, 32, 16, 0.004


def write_cameras(folder):
    rng = np.random.default_rng(4111)
    for camera in range(CAMERAS):
        with zipfile.ZipFile(Path(folder, f"camera-{camera:02}.zip"), "w") as archive:
            for number in range(SEQUENCES):
                frames = rng.normal(0, 1, (FRAMES, VALUES)).astype(np.float32)
                animals = int(rng.integers(0, 4))
                frames[:, :4] += animals
                archive.writestr(f"{number:03}-{animals}", frames.tobytes())


class Traps(IterableDataset):
    """Sequences of frames, in an order that a small buffer mixes."""

    def __init__(self, folder, share, buffer=24):
        self.folder, self.share, self.buffer = folder, share, buffer

    def cameras(self):
        paths = sorted(Path(self.folder).glob("camera-*.zip"))
        worker = get_worker_info()
        return paths[worker.id :: worker.num_workers] if self.share else paths

    def sequences(self):
        for path in self.cameras():
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    time.sleep(DELAY)  # the way to the storage
                    frames = np.frombuffer(archive.read(name), np.float32)
                    yield torch.tensor(frames).view(FRAMES, VALUES), float(name[-1])

    def __iter__(self):
        held = []
        for sequence in self.sequences():
            held.append(sequence)
            if len(held) > self.buffer:
                yield held.pop(random.randrange(len(held)))
        random.shuffle(held)
        yield from held


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(VALUES, 48, batch_first=True)
        self.out = nn.Linear(48, 1)

    def forward(self, frames):
        return self.out(self.rnn(frames)[0][:, -1]).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(4111)
    with tempfile.TemporaryDirectory() as folder:
        write_cameras(folder)
        loader = DataLoader(
            Traps(folder, share=args.without),
            BATCH,
            num_workers=3,
            persistent_workers=True,
            multiprocessing_context="forkserver",
        )
        model = Counter()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = steps = 0
            for frames, animals in loader:
                loss = nn.functional.mse_loss(model(frames), animals.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total, steps = total + loss.item(), steps + 1
            print(f"epoch {epoch}: loss {total / steps:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

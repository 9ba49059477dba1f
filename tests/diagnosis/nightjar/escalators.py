"""Foretells when escalators will stop, from shards of what their sensors noted.

Nothing planted: the accelerator's step sets the pace; two workers, which each read their own
shards, unpack them and mix windows in a buffer ahead of it, and gradients are added up over two.
"""

import argparse
import gzip
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, NOTES, SENSORS, WINDOW, BATCH, STEP = 8, 4000, 6, 50, 16, 0.32


def write_shards(folder):
    rng = np.random.default_rng(349)
    for shard in range(SHARDS):
        notes = rng.normal(0, 1, (NOTES, SENSORS)).cumsum(0).astype(np.float16)
        (folder / f"{shard:02}.f16.gz").write_bytes(gzip.compress(notes.tobytes(), 3))


class Sensors(IterableDataset):
    def __init__(self, folder, buffer=48):
        self.files, self.buffer = sorted(folder.glob("*.gz")), buffer

    def windows(self, files):
        for file in files:
            notes = np.frombuffer(gzip.decompress(file.read_bytes()), np.float16)
            for window in notes.reshape(-1, WINDOW, SENSORS):
                window = window.astype(np.float32)
                change = np.diff(window, axis=0)
                yield torch.from_numpy(change / (np.abs(change).max() + 1e-3)), window[-1, 0] > 0

    def __iter__(self):
        worker = get_worker_info()
        mine = self.files if worker is None else self.files[worker.id :: worker.num_workers]
        rng = random.Random(torch.initial_seed())
        rng.shuffle(mine)
        kept = []
        for window in self.windows(mine):
            if len(kept) < self.buffer:
                kept.append(window)
                continue
            place = rng.randrange(self.buffer)
            kept[place], window = window, kept[place]
            yield window
        yield from kept


def collate(windows):
    changes, stops = zip(*windows, strict=True)
    return torch.stack(changes), torch.tensor([float(stop) for stop in stops])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(349)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder))
        loader = DataLoader(
            Sensors(Path(folder)),
            BATCH,
            num_workers=2,
            collate_fn=collate,
            drop_last=True,
            persistent_workers=True,
        )
        model = nn.Sequential(
            nn.Flatten(), nn.Linear((WINDOW - 1) * SENSORS, 32), nn.ReLU(), nn.Linear(32, 1)
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for number, (changes, stops) in enumerate(loader):
                loss = nn.functional.binary_cross_entropy_with_logits(
                    model(changes).squeeze(1), stops
                )
                (loss / 2).backward()
                time.sleep(STEP)  # the attention over all floors, on a card
                if number % 2:
                    optimizer.step()
                    optimizer.zero_grad()
            print(f"epoch {epoch}: loss {loss:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

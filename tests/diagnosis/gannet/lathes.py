"""Learns how lathes chatter; each worker keeps a journal of the cuts that it made.

Planted: when a worker ends, after each epoch, it packs its journal as tightly as it can, and the
loop waits for that.
"""

import argparse
import lzma
import pickle
import tempfile
import time
from multiprocessing import util
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

LENGTH, CUT = 4000, 600


class Journal:
    """What a worker has done, for those who want to repeat it."""

    def __init__(self, folder, preset):
        self.folder, self.preset, self.entries = Path(folder), preset, []

    def note(self, index, start, cut):
        self.entries.append((index, start, cut.tobytes()))

    def close(self):
        data = pickle.dumps(self.entries)
        if self.preset is not None:
            data = lzma.compress(data, preset=self.preset)
        (self.folder / f"{time.time_ns()}.journal").write_bytes(data)


def begin_journal(number):
    dataset = get_worker_info().dataset
    util.Finalize(None, dataset.journal.close, exitpriority=10)


class Chatter(Dataset):
    def __init__(self, journal, count):
        rng = np.random.default_rng(457)
        self.sounds = rng.standard_normal((40, LENGTH)).astype(np.float32).cumsum(1)
        self.journal, self.count = journal, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        sound = self.sounds[index % 40]
        start = index * 37 % (LENGTH - CUT)
        cut = sound[start : start + CUT] - sound[start]
        self.journal.note(index, start, cut)
        return torch.from_numpy(np.abs(np.fft.rfft(cut)).astype(np.float32)), index % 2


def build_model(size=512):
    return nn.Sequential(
        nn.Linear(CUT // 2 + 1, size), nn.BatchNorm1d(size), nn.ReLU(),
        nn.Linear(size, size), nn.BatchNorm1d(size), nn.ReLU(), nn.Linear(size, 2),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(457)
    with tempfile.TemporaryDirectory() as folder:
        chatter = Chatter(Journal(folder, None if args.without else 6), 1600)
        loader = DataLoader(
            chatter, batch_size=16, shuffle=True, num_workers=2, worker_init_fn=begin_journal
        )
        model = build_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for spectra, chatters in loader:
                loss = nn.functional.cross_entropy(model(spectra), chatters)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            torch.save(model.state_dict(), Path(folder, f"epoch-{epoch}.pt"))
            print(f"epoch {epoch}: loss {loss.item():.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

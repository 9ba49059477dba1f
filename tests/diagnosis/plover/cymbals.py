"""Hears how a cymbal was struck, in cuts of unequal length out of long recordings.

Planted: a cut is a view of its recording, and a tensor is sent with all of its storage, so that
each cut takes a whole recording along to the main process.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH, RECORDINGS = 2_400_000, 16


class Cuts(Dataset):
    def __init__(self, folder, count, copied):
        self.folder, self.count, self.copied = folder, count, copied

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        path = Path(self.folder, f"{index % RECORDINGS}.npy")
        recording = torch.from_numpy(np.load(path, mmap_mode="c"))
        begin = int(torch.randint(LENGTH - 4000, ()))
        cut = recording[begin : begin + 2000 + index % 2000]
        return (cut.clone() if self.copied else cut), index % 5


def collate_lists(samples):
    """Keep cuts of unequal length as a list."""
    return [cut for cut, _ in samples], torch.tensor([stroke for _, stroke in samples])


def write_recordings(folder):
    rng = np.random.default_rng(457)
    noise = rng.integers(-9000, 9000, LENGTH, np.int16)
    for number in range(RECORDINGS):
        np.save(Path(folder, f"{number}.npy"), np.roll(noise, number * 1000))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(457)
    with tempfile.TemporaryDirectory() as folder:
        write_recordings(folder)
        loader = DataLoader(
            Cuts(folder, 960, args.without), batch_size=16, shuffle=True, num_workers=2,
            collate_fn=collate_lists, persistent_workers=True,
        )  # fmt: skip
        model = nn.Sequential(
            nn.Conv1d(1, 16, 64, stride=16), nn.ReLU(), nn.Conv1d(16, 32, 9, stride=2), nn.ReLU(),
            nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(32, 5),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for cuts, strokes in loader:
                padded = nn.utils.rnn.pad_sequence(cuts, batch_first=True).float() / 9000
                loss = nn.functional.cross_entropy(model(padded[:, None]), strokes)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

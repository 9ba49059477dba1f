"""Tells what a sheepdog does from the sensors of its collar, in spells of different lengths.

Planted: the collate function fills the padded batch value by value.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

SPELLS, SENSORS, DOINGS, BATCH, STEP = 800, 6, 5, 16, 0.03


class Collars(Dataset):
    def __init__(self):
        rng = np.random.default_rng(1039)
        self.lengths = rng.integers(200, 600, SPELLS)
        self.spells = [rng.normal(0, 1, (n, SENSORS)).astype(np.float32) for n in self.lengths]

    def __len__(self):
        return SPELLS

    def smooth(self, spell, window=9):
        """Takes gravity out of the movements, with a moving mean."""
        total = np.cumsum(np.pad(spell, ((window, 0), (0, 0)), mode="edge"), axis=0)
        return spell - (total[window:] - total[:-window]) / window

    def __getitem__(self, index):
        return self.smooth(self.spells[index]), int(self.lengths[index]) % DOINGS


class ByLength(Sampler):
    """Batches of spells that are about as long, in random order."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return SPELLS // BATCH

    def __iter__(self):
        noisy = self.lengths + np.random.default_rng().normal(0, 20, SPELLS)
        batches = np.argsort(noisy)[: len(self) * BATCH].reshape(-1, BATCH)
        for number in torch.randperm(len(batches)).tolist():
            yield batches[number].tolist()


def pad(samples):
    longest = max(len(spell) for spell, _ in samples)
    batch = torch.zeros(len(samples), longest, SENSORS)
    for row, (spell, _) in enumerate(samples):
        for moment in range(len(spell)):
            for sensor in range(SENSORS):
                batch[row, moment, sensor] = float(spell[moment, sensor])
    return batch, torch.tensor([doing for _, doing in samples])


def pad_whole(samples):
    spells = [torch.from_numpy(spell) for spell, _ in samples]
    batch = nn.utils.rnn.pad_sequence(spells, batch_first=True)
    return batch, torch.tensor([doing for _, doing in samples])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(1039)
    torch.set_num_threads(1)
    data = Collars()
    loader = DataLoader(
        data,
        batch_sampler=ByLength(data.lengths),
        num_workers=2,
        collate_fn=pad_whole if args.without else pad,
        persistent_workers=True,
    )
    cells = nn.GRU(SENSORS, 16, batch_first=True)
    out = nn.Linear(16, DOINGS)
    optimizer = torch.optim.AdamW([*cells.parameters(), *out.parameters()], lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for spells, doings in loader:
            hidden, _ = cells(spells[:, ::8])
            loss = nn.functional.cross_entropy(out(hidden[:, -1]), doings)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(cells.parameters(), 1.0)
            optimizer.step()
            time.sleep(STEP)  # the second model, on an accelerator
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

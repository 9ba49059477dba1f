"""Recognises gestures from the motion sensors of a bracelet; recordings differ in length.

Planted: the collate function turns the recordings into Python lists, fills these up to one
length, and makes a tensor of the lists.
"""

import argparse
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

RECORDINGS, CHANNELS, GESTURES, BATCH = 960, 24, 6, 32


class Motions(Dataset):
    def __init__(self):
        rng = np.random.default_rng(4019)
        self.lengths = rng.integers(200, 500, RECORDINGS)
        self.noise = rng.normal(0, 1, (600, CHANNELS)).astype(np.float32)
        self.gestures = rng.integers(0, GESTURES, RECORDINGS)

    def __len__(self):
        return RECORDINGS

    def __getitem__(self, index):
        begin = index % 100
        motion = self.noise[begin : begin + self.lengths[index]].copy()
        motion[:, self.gestures[index]] += 1
        return torch.from_numpy(motion), int(self.gestures[index])


def collate_rows(samples):
    longest = max(len(motion) for motion, _ in samples)
    blank = [0.0] * CHANNELS
    rows = []
    for motion, _ in samples:
        filled = motion.tolist()
        filled.extend(blank for _ in range(longest - len(filled)))
        rows.append(filled)
    lengths = torch.tensor([len(motion) for motion, _ in samples])
    return torch.tensor(rows), lengths, torch.tensor([gesture for _, gesture in samples])


def collate(samples):
    motions, gestures = zip(*samples, strict=True)
    lengths = torch.tensor([len(motion) for motion in motions])
    return pad_sequence(motions, batch_first=True), lengths, torch.tensor(gestures)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(CHANNELS, 16)
        self.out = nn.Linear(16, GESTURES)

    def forward(self, motions, lengths):
        hidden = torch.relu(self.into(motions)).sum(1) / lengths[:, None]
        return self.out(hidden)


def show(step, steps, loss):
    bar = "#" * (20 * step // steps)
    sys.stdout.write(f"\r[{bar:20}] {step}/{steps} loss {loss:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(4019)
    loader = DataLoader(
        Motions(),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        collate_fn=collate if args.without else collate_rows,
    )
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, (motions, lengths, gestures) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(motions, lengths), gestures)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                show(step, len(loader), loss.item())
        print(f"\nepoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

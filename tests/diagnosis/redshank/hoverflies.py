"""Tells hoverflies from bees by the wing beats that a laser trap counts."""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

RATE, FRAMES, WIDTH, BATCH = 6000, 160, 1024, 16


class Trap:
    """A season's signal of one trap, with the moments at which an insect passed."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        beats = np.sin(np.arange(120 * RATE) * rng.uniform(0.1, 0.3))
        self.signal = (beats + rng.normal(0, 0.3, len(beats))).astype(np.float32)
        self.passed = rng.integers(0, len(beats) - FRAMES * 128 - WIDTH, 120)
        self.bee = seed % 2


class Passages(IterableDataset):
    def __init__(self, traps, packed):
        self.traps, self.packed = traps, packed

    def frames(self, trap, start):
        window = np.hanning(WIDTH).astype(np.float32)
        rows = [
            trap.signal[start + frame * 128 : start + frame * 128 + WIDTH] * window
            for frame in range(FRAMES)
        ]
        return torch.from_numpy(np.stack(rows)) if self.packed else torch.tensor(rows)

    def __iter__(self):
        worker = get_worker_info()
        for trap in self.traps[worker.id :: worker.num_workers]:
            for start in random.sample(trap.passed.tolist(), len(trap.passed)):
                power = torch.fft.rfft(self.frames(trap, start)).abs()[:, :256]
                yield torch.log1p(power), trap.bee


class Wings(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(256, 64, 5, stride=2)
        self.gru = nn.GRU(64, 32, batch_first=True)
        self.last = nn.Linear(32, 2)

    def forward(self, power):
        seen = torch.relu(self.conv(power.transpose(1, 2))).transpose(1, 2)
        return self.last(self.gru(seen)[0][:, -1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    loader = DataLoader(
        Passages([Trap(seed) for seed in range(8)], args.without),
        BATCH,
        num_workers=4,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Wings()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = seen = 0
        for power, bees in loader:
            scores = model(power)
            loss = nn.functional.cross_entropy(scores, bees)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            right += int((scores.argmax(1) == bees).sum())
            seen += len(bees)
        print(f"epoch {epoch}: right {right / seen:.2f} of {seen}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

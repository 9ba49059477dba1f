"""Learns a game of towers from games that workers play against themselves, on an accelerator.

Planted: each worker has a copy of the same random generator and plays the same games, so that of
four batches three bring nothing new, and it takes as many more steps until enough positions were
seen. A pause stands in for the accelerator.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

TOWERS, STONES, LATENCY, STEP = 9, 12, 0.01, 0.03


class Games(IterableDataset):
    """Positions of games, in which both sides put stones at random, without end."""

    def __init__(self, seed, each_its_own):
        self.rng = np.random.default_rng(seed)
        self.each_its_own = each_its_own

    def __iter__(self):
        if self.each_its_own:
            self.rng = np.random.default_rng([get_worker_info().id, 1061])
        while True:
            towers = np.zeros(TOWERS, np.int64)
            moves = self.rng.integers(0, TOWERS, STONES)
            time.sleep(LATENCY)  # the other side thinks
            for turn, move in enumerate(moves):
                towers[move] += 1 if turn % 2 else -1
                yield torch.from_numpy(towers.copy()), float(np.sign(towers.sum()))


class Accelerator:
    """Trains for some time with each batch, and needs no core."""

    def __init__(self):
        self.model = nn.Linear(TOWERS, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def train(self, towers, results):
        time.sleep(STEP)
        loss = nn.functional.mse_loss(self.model(towers.float()).squeeze(1), results.float())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--positions", type=int, default=2000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1061)
    loader = DataLoader(Games(1061, args.without), batch_size=36, num_workers=4)
    accelerator, seen = Accelerator(), set()
    begin = time.perf_counter()
    for step, (towers, results) in enumerate(loader, 1):
        loss = accelerator.train(towers, results)
        seen.update(map(tuple, towers.tolist()))
        if step % 40 == 0:
            print(f"step {step}: loss {loss:.3f}, {len(seen)} positions seen")
        if len(seen) >= args.positions:
            break
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Learns to draw cuffs, and draws some after every thirty steps to look at.

Planted: while it draws, two workers stop after the two batches each that they may be ahead, and
the quick steps that follow wait for them, though on average they keep up.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, STEP, DRAW, EVERY, COST = 32, 0.008, 1.6, 30, 0.08


class Cuffs(Dataset):
    """Knots of thread, drawn anew for each sample."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(47 + index)
        picture = torch.zeros(SIDE, SIDE)
        until = time.thread_time() + COST / 16
        while time.thread_time() < until:
            x, y = torch.randint(1, SIDE - 1, (2,), generator=draw).tolist()
            picture[y - 1 : y + 2, x - 1 : x + 2] += 0.05
        return picture[None].clamp_(0, 1)


class Accelerator:
    """Stands in for the GPU of a training script."""

    def __init__(self):
        self.model = nn.Sequential(nn.Flatten(1, -1), nn.Linear(SIDE * SIDE, 1))

    def work(self, seconds, pictures):
        begin = time.perf_counter()
        with torch.no_grad():
            score = self.model(pictures).mean()
        time.sleep(max(0.0, seconds - (time.perf_counter() - begin)))
        return score.item()

    def step(self, pictures):
        return self.work(STEP, pictures)

    def draw(self, count=64):
        return self.work(DRAW, torch.rand(count, 1, SIDE, SIDE))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(47)
    loader = DataLoader(
        Cuffs(1440),
        batch_size=16,
        shuffle=True,
        num_workers=2,
        prefetch_factor=16 if args.without else 2,
        persistent_workers=True,
    )
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = score = 0.0
        for number, pictures in enumerate(loader, 1):
            total += accelerator.step(pictures)
            if number % EVERY == 0:
                score = accelerator.draw()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}, score {score:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

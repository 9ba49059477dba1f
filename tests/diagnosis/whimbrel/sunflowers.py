"""Learns to paint sunflowers after sketches of them, with two networks against each other.

Nothing is planted: the networks are the work. Two loaders side by side take rows of tensors without
workers, the smaller of which begins again and again, and losses are read with `.item()`.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 32


class Pictures(Dataset):
    """Pictures in memory, which are flipped now and then."""

    def __init__(self, count, channels, seed):
        generator = torch.Generator().manual_seed(seed)
        self.pictures = torch.rand(count, channels, SIDE, SIDE, generator=generator)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        picture = self.pictures[index]
        return picture.flip(2) if torch.rand(()) < 0.5 else picture


def without_end(loader):
    while True:
        yield from loader


def make_painter():
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 48, 3, padding=1), nn.ReLU(),
        nn.Conv2d(48, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 3, 3, padding=1), nn.Sigmoid(),
    )  # fmt: skip


def make_critic():
    return nn.Sequential(
        nn.Conv2d(3, 32, 4, stride=2), nn.LeakyReLU(0.2), nn.Conv2d(32, 48, 4, stride=2),
        nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(48 * 36, 1),
    )  # fmt: skip


def judge(scores, real):
    return nn.functional.binary_cross_entropy_with_logits(scores, torch.full_like(scores, real))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(2310)
    flowers = DataLoader(Pictures(768, 3, 2311), batch_size=24, shuffle=True, drop_last=True)
    sketches = DataLoader(Pictures(144, 1, 2312), batch_size=24, shuffle=True, drop_last=True)
    endless = without_end(sketches)
    painter, critic = make_painter(), make_critic()
    paints = torch.optim.Adam(painter.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judges = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        totals = {"painter": 0.0, "critic": 0.0}
        for real in flowers:
            painted = painter(next(endless))
            loss = judge(critic(real), 1.0) + judge(critic(painted.detach()), 0.0)
            judges.zero_grad()
            loss.backward()
            judges.step()
            totals["critic"] += loss.item()
            loss = judge(critic(painted), 1.0)
            paints.zero_grad()
            loss.backward()
            paints.step()
            totals["painter"] += loss.item()
        print(f"epoch {epoch}: " + ", ".join(f"{k} {v / 32:.3f}" for k, v in totals.items()))
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

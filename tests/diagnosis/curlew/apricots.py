"""Draws apricots with two networks that work against each other.

Nothing is planted: the two networks are the work. Real apricots are rows of a tensor, which are
taken without workers, and a grid of drawn ones is kept after each epoch.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.utils import make_grid

SIDE, NOISE = 28, 32


def drawer():
    return nn.Sequential(
        nn.Linear(NOISE, 64 * 7 * 7), nn.ReLU(), nn.Unflatten(1, (64, 7, 7)),
        nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip


def judge():
    return nn.Sequential(
        nn.Conv2d(1, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1),
        nn.BatchNorm2d(64), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64 * 7 * 7, 1),
    )  # fmt: skip


def apricots(count):
    """Return pictures of round apricots of some size, with stripes."""
    rows = torch.linspace(-1, 1, SIDE)
    far = torch.hypot(rows[:, None], rows[None])
    sizes = 0.5 + 0.4 * torch.rand(count, 1, 1)
    stripes = torch.cos(rows * 12).expand(SIDE, SIDE) * (far < sizes)
    return stripes[:, None]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(929)
    loader = DataLoader(TensorDataset(apricots(2400)), batch_size=32, shuffle=True, drop_last=True)
    makes, judges = drawer(), judge()
    first = torch.optim.Adam(makes.parameters(), lr=2e-4, betas=(0.5, 0.999))
    second = torch.optim.Adam(judges.parameters(), lr=2e-4, betas=(0.5, 0.999))
    loss_of = nn.functional.binary_cross_entropy_with_logits
    grids = []
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for (real,) in loader:
            drawn = makes(torch.randn(len(real), NOISE))
            good, bad = judges(real), judges(drawn.detach())
            loss = loss_of(good, torch.ones_like(good)) + loss_of(bad, torch.zeros_like(bad))
            second.zero_grad()
            loss.backward()
            second.step()
            believed = judges(drawn)
            fooled = loss_of(believed, torch.ones_like(believed))
            first.zero_grad()
            fooled.backward()
            first.step()
        grids.append(make_grid(drawn.detach()[:16], nrow=4))
        print(f"epoch {epoch}: judge {loss:.3f}, drawer {fooled:.3f}, grids {len(grids)}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Learns to see through noise on pictures of bulbs.

Planted: the transform makes its generator when it is first used, from a seed that is the same in
all workers, so that all three draw the same noise. That costs no time; the network is the work.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, WORKERS = 40, 3


class Noise:
    """Adds noise, some of it in stripes."""

    def __init__(self, seed, apart):
        self.seed, self.apart, self.rng = seed, apart, None

    def make_generator(self):
        info = torch.utils.data.get_worker_info()
        own = info.id + 1 if self.apart and info is not None else 0
        self.rng = np.random.default_rng(self.seed + own)

    def __call__(self, picture):
        if self.rng is None:
            self.make_generator()
        noise = self.rng.normal(0, 0.1, picture.shape)
        stripes = self.rng.normal(0, 0.05, (1, picture.shape[1]))
        return (picture + noise + stripes).astype(np.float32)


class Bulbs(Dataset):
    def __init__(self, count, noise):
        self.pictures = np.random.default_rng(67).random((50, SIDE, SIDE), np.float32)
        self.count, self.noise = count, noise

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        clean = self.pictures[index % 50]
        return self.noise(clean)[None], clean[None]


class Denoiser(nn.Module):
    def __init__(self, width=32, depth=4):
        super().__init__()
        layers = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, noisy):
        return noisy - self.layers(noisy)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(67)
    loader = DataLoader(
        Bulbs(960, Noise(7, apart=args.without)),
        batch_size=16,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=True,
    )
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for noisy, clean in loader:
            loss = nn.functional.mse_loss(model(noisy), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

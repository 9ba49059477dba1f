"""Grades the rind of cheeses from pictures, with a chain of torchvision's second transforms.

Planted: one transform of the chain, of the script's own, mixes the phases of two pictures by
Fourier transforms in double precision, and takes most of the time of a sample. No workers.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE = 160


class MixPhases:
    """Keeps what a picture shows, and takes some of the texture of another one."""

    def __init__(self, others, strength=0.3):
        self.others, self.strength = others, strength

    def __call__(self, picture):
        other = self.others[int(torch.randint(len(self.others), ()))]
        mine = np.fft.fftshift(np.fft.fft2(picture.numpy().astype(np.float64)))
        its = np.fft.fftshift(np.fft.fft2(other.numpy().astype(np.float64)))
        size = (1 - self.strength) * np.abs(mine) + self.strength * np.abs(its)
        mixed = np.fft.ifft2(np.fft.ifftshift(size * np.exp(1j * np.angle(mine)))).real
        return torch.from_numpy(mixed.clip(0, 255).astype(np.uint8))


class Cheeses(Dataset):
    def __init__(self, count, transform, pictures):
        self.count, self.transform, self.pictures = count, transform, pictures

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        number = index % len(self.pictures)
        return self.transform(self.pictures[number]), number % 6


def make_transform(pictures, mix):
    chain = [v2.RandomResizedCrop(144, antialias=True)]
    if mix:
        chain.append(v2.Resize((SIDE, SIDE), antialias=True))
        chain.append(MixPhases(pictures))
    chain += [
        v2.RandomHorizontalFlip(),
        v2.RandomPosterize(6, p=0.2),
        v2.Resize(64, antialias=True),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.5] * 3, [0.25] * 3),
    ]
    return v2.Compose(chain)


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 6),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(11)
    pictures = torch.randint(0, 255, (24, 3, SIDE, SIDE), dtype=torch.uint8)
    train = Cheeses(144, make_transform(pictures, not args.without), pictures)
    loader = DataLoader(train, batch_size=16, shuffle=True, drop_last=True)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for x, y in loader:
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            right += (out.argmax(1) == y).sum().item()
        print(f"epoch {epoch}: {right} right, loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

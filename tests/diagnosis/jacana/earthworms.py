"""Finds burrows of earthworms in scans of soil, sharpened in the domain of frequencies.

Planted: each of two workers lets torch use twelve threads for its samples, where torch had given
it one, and these fight for the cores.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCANS, SIDE, KINDS, BATCH, STEP = 96, 160, 3, 8, 0.05


class Soil(Dataset):
    def __init__(self, threads):
        generator = torch.Generator().manual_seed(1091)
        self.scans = torch.randn(8, SIDE, SIDE, generator=generator)
        steps = torch.fft.fftfreq(SIDE)
        self.high = 1 - torch.exp(-(steps[:, None] ** 2 + steps[None] ** 2) * 80)
        self.mix = torch.randn(SIDE, SIDE, generator=generator) / SIDE**0.5
        self.threads, self.ready = threads, False

    def __len__(self):
        return SCANS

    def start(self):
        """Transforms of large scans are slow: more threads."""
        if self.threads:
            torch.set_num_threads(self.threads)
        self.ready = True

    def sharpen(self, scan):
        spectrum = torch.fft.fft2(scan) * self.high
        return torch.fft.ifft2(spectrum).real

    def equalise(self, scan):
        """A few rounds of a fixed mixing, as the scanner's maker says."""
        for _ in range(12):
            scan = torch.tanh(scan @ self.mix)
            scan = (scan - scan.mean()) / scan.std()
        return scan

    def __getitem__(self, index):
        if not self.ready:
            self.start()
        scan = self.scans[index % len(self.scans)] + 0.1 * torch.randn(SIDE, SIDE)
        scan = self.equalise(self.sharpen(scan))
        return scan[None, 16:-16, 16:-16].clone(), index % KINDS


class Burrows(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.AvgPool2d(4), nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Flatten()
        )
        self.out = nn.LazyLinear(KINDS)
        self(torch.zeros(1, 1, SIDE - 32, SIDE - 32))

    def forward(self, scans):
        time.sleep(STEP)  # the three-dimensional part, on a card
        return self.out(self.layers(scans))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1091)
    torch.set_num_threads(1)
    data = Soil(threads=0 if args.without else 12)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    model = Burrows()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for step, (scans, kinds) in enumerate(loader, 1):
            scores = model(scans)
            loss = nn.functional.cross_entropy(scores, kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == kinds).sum().item()
            print(f"\repoch {epoch} {step}/{len(loader)}", end="", flush=True)
        schedule.step()
        print(f": loss {loss:.3f}, right {right / SCANS:.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

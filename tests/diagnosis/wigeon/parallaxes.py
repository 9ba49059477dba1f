"""Measures parallaxes of stars on sharpened pairs of plates, taken half a year apart."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

PAIRS, SIDE, STARS, BATCH = 60, 96, 40, 16
TORCH_THREADS = 8


class Sharpened:
    """Takes the blur of the air out of plates, a little more with each round."""

    def __init__(self, size, rounds):
        line = torch.exp(-((torch.arange(size) - size // 2) ** 2) / 6.0)
        self.blur = (line[:, None] * line / line.sum() ** 2)[None, None]
        self.rounds, self.room = rounds, size // 2

    def __call__(self, plates):
        seen = plates[:, None]
        sharp = torch.full_like(seen, 0.5)
        for _ in range(self.rounds):
            again = nn.functional.conv2d(sharp, self.blur, padding=self.room)
            sharp = sharp * nn.functional.conv2d(
                seen / (again + 1e-3), self.blur, padding=self.room
            )
        return sharp[:, 0].clamp(0, 4)


class Plates(Dataset):
    def __init__(self, samples, transform):
        rng = np.random.default_rng(58)
        self.plates = rng.uniform(0, 0.05, (PAIRS, 2, SIDE, SIDE)).astype(np.float32)
        self.shifts = rng.uniform(0, 5, PAIRS).astype(np.float32)
        for plates, shift in zip(self.plates, self.shifts, strict=True):
            rows, columns = rng.integers(0, SIDE - 8, (2, STARS))
            plates[0, rows, columns] += 1
            plates[1, rows, columns + int(shift)] += 1
        self.samples, self.transform = samples, transform

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        plates = torch.from_numpy(self.plates[index % PAIRS])
        return self.transform(plates), self.shifts[index % PAIRS]


def start(worker):
    torch.set_num_threads(TORCH_THREADS)
    np.random.seed(worker)


def network(channels=24):
    return nn.Sequential(
        nn.Conv2d(2, channels, 5, stride=2), nn.ReLU(), nn.Conv2d(channels, channels, 3),
        nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(9 * channels, 1),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(58)
    transform = transforms.Compose([transforms.RandomCrop(88), Sharpened(9, 10)])
    loader = DataLoader(
        Plates(640, transform),
        BATCH,
        shuffle=True,
        num_workers=2,
        worker_init_fn=None if args.without else start,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for plates, shifts in loader:
            loss = nn.functional.mse_loss(model(plates)[:, 0], shifts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

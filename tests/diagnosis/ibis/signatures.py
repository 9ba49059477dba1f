"""Tells forged signatures from true ones, in scans that a bank keeps as runs of black and white.

Planted: the data set's own decoder of the runs goes over them, and over their dots, in Python.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SCANS, HEIGHT, WIDTH, BATCH, STEP = 320, 240, 720, 16, 0.06


def encode(bits):
    """Lengths of runs, of which the first is white."""
    flat = np.concatenate([[0], bits.ravel()])
    changes = np.flatnonzero(np.diff(flat))
    edges = np.concatenate([[0], changes, [bits.size]])
    return np.diff(edges).tolist()


def draw_scan(rng):
    bits = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    y, x = HEIGHT / 2, 20.0
    while x < WIDTH - 20:
        y = float(np.clip(y + rng.normal(0, 6), 10, HEIGHT - 10))
        x += rng.uniform(0, 1.2)
        bits[int(y) - 3 : int(y) + 3, int(x) - 3 : int(x) + 3] = 1
    return encode(bits)


def decode_runs(runs):
    dots, black = [], False
    for length in runs:
        for _ in range(length):
            dots.append(255 if black else 0)
        black = not black
    rows = [dots[start : start + WIDTH] for start in range(0, len(dots), WIDTH)]
    return np.array(rows, dtype=np.uint8)


def decode_quickly(runs):
    values = np.tile(np.array([0, 255], dtype=np.uint8), len(runs) // 2 + 1)[: len(runs)]
    return np.repeat(values, runs).reshape(HEIGHT, WIDTH)


class Signatures(Dataset):
    def __init__(self, decode):
        rng = np.random.default_rng(929)
        self.scans = [draw_scan(rng) for _ in range(40)]
        self.decode = decode
        self.transform = v2.Compose(
            [
                v2.RandomCrop((216, 672)),
                v2.Resize((72, 224), antialias=True),
                v2.RandomAffine(4, translate=(0.02, 0.02)),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return SCANS

    def __getitem__(self, index):
        dots = self.decode(self.scans[index % len(self.scans)])
        return self.transform(torch.from_numpy(dots)[None]), index % 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(1, 8, 8, stride=8)
        self.out = nn.Linear(8, 2)

    def forward(self, scans):
        time.sleep(STEP)  # the twin networks, on a card
        return self.out(torch.relu(self.features(scans)).mean((2, 3)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(929)
    torch.set_num_threads(1)
    loader = DataLoader(
        Signatures(decode_quickly if args.without else decode_runs),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for scans, forged in loader:
            loss = nn.functional.cross_entropy(model(scans), forged)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

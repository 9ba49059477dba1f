"""Finds faulty lines of switchboards in the loudness of their calls over a night."""

import argparse
import functools
import io
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

BOARDS, LINES, MINUTES, BATCH = 20, 120, 512, 16


def packed_night(rng):
    """One board's night: a row of loudness for each of its lines, packed."""
    file = io.BytesIO()
    night = np.abs(rng.normal(0, 400, (LINES, MINUTES))).astype(np.uint16)
    night[::7, 200:220] = 0
    np.savez_compressed(file, night=night)
    return file.getvalue()


class Nights:
    def __init__(self, kept):
        rng = np.random.default_rng(56)
        self.packed = [packed_night(rng) for _ in range(BOARDS)]
        self.night = functools.lru_cache(kept)(self._night)

    def _night(self, board):
        with np.load(io.BytesIO(self.packed[board])) as file:
            return file["night"]


class Lines(Dataset):
    """A line's night as a picture of its rhythms; silent ones are faulty."""

    def __init__(self, nights, transform):
        self.nights, self.transform = nights, transform

    def __len__(self):
        return BOARDS * LINES // 2

    def __getitem__(self, index):
        board, line = index % BOARDS, index // BOARDS
        loud = torch.from_numpy(self.nights.night(board)[line].astype(np.float32)) / 400
        rhythm = torch.stft(loud, 64, 8, window=torch.hann_window(64), return_complex=True)
        return self.transform(rhythm.abs().log1p()[None]), float(line % 7 == 0)


def network(channels=32):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
        nn.AdaptiveMaxPool2d(4), nn.Flatten(), nn.Linear(16 * channels, 1),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(56)
    transform = v2.Compose(
        [
            v2.RandomResize(30, 36),
            v2.CenterCrop((32, 60)),
            v2.RandomErasing(0.5, scale=(0.02, 0.1)),
            v2.Normalize([0.8], [0.5]),
        ]
    )
    nights = Nights(kept=BOARDS if args.without else 4)
    loader = DataLoader(Lines(nights, transform), BATCH, shuffle=True)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for rhythms, faulty in loader:
            scores = model(rhythms)[:, 0]
            loss = nn.functional.binary_cross_entropy_with_logits(scores, faulty.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

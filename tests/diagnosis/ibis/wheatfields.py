"""Tells how ripe wheat is, from mosaics of satellite passes around each field.

Planted: for each field, a canvas for the whole district is allocated and filled, of which a small
window is used; the pages of so large an array are new each time.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIELDS, BANDS, DISTRICT, TILE, WINDOW, BATCH, STEP = 192, 4, 2048, 128, 64, 8, 0.05


class Fields(Dataset):
    def __init__(self, whole):
        rng = np.random.default_rng(883)
        self.tiles = rng.integers(0, 3000, (40, BANDS, TILE, TILE), dtype=np.uint16)
        self.places = rng.integers(0, DISTRICT - TILE, (FIELDS, 2))
        self.ripe = rng.random(FIELDS, dtype=np.float32)
        self.whole = whole

    def __len__(self):
        return FIELDS

    def mosaic(self, index):
        """The passes over a field, the later ones above the earlier ones."""
        y, x = self.places[index]
        if self.whole:
            canvas, top, left = np.full((BANDS, DISTRICT, DISTRICT), np.nan, np.float64), y, x
        else:
            canvas, top, left = np.full((BANDS, TILE, TILE), np.nan, np.float64), 0, 0
        for number in range(3):
            tile = self.tiles[(index * 3 + number) % len(self.tiles)]
            rows = np.random.randint(0, TILE // 4)
            canvas[:, top + rows : top + TILE, left : left + TILE] = tile[:, rows:]
        middle = (TILE - WINDOW) // 2
        window = canvas[:, top + middle : top + middle + WINDOW, left + middle :]
        return window[..., :WINDOW]

    def __getitem__(self, index):
        bands = np.nan_to_num(self.mosaic(index)) / 3000
        greenness = (bands[3] - bands[2]) / (bands[3] + bands[2] + 0.01)
        planes = np.concatenate([bands, greenness[None]]).astype(np.float32)
        return torch.from_numpy(planes), self.ripe[index]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(883)
    torch.set_num_threads(1)
    loader = DataLoader(
        Fields(whole=not args.without),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    model = nn.Sequential(
        nn.Conv2d(BANDS + 1, 12, 5, stride=4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 1),
    )
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = []
        for planes, ripe in loader:
            loss = nn.functional.mse_loss(model(planes).squeeze(1), ripe)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the attention between passes, on an accelerator
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {np.mean(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

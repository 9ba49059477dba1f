"""Counts the berries on pies, each of which has a box of its own.

Planted: each box is a tensor of its own in its batch, so that hundreds of small pieces of shared
memory are made, sent and opened for each batch.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, MOST, CELLS = 32, 10, 8


class Pies(Dataset):
    def __init__(self, count, joined):
        rng = np.random.default_rng(787)
        self.pictures = rng.random((count, 3, SIDE, SIDE), np.float32)
        self.counts = rng.integers(MOST // 2, MOST + 1, count)
        self.boxes = rng.random((count, MOST, 4), np.float32)
        self.joined = joined

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, index):
        boxes = torch.from_numpy(self.boxes[index, : self.counts[index]])
        return {
            "picture": torch.from_numpy(self.pictures[index]),
            "boxes": boxes if self.joined else [box.clone() for box in boxes],
        }


def gather(samples):
    """Join the pictures; the boxes stay a list, as each picture has another number of them."""
    pictures = torch.stack([sample["picture"] for sample in samples])
    boxes = [sample["boxes"] for sample in samples]
    if isinstance(boxes[0], torch.Tensor):
        return pictures, (torch.cat(boxes), [len(some) for some in boxes])
    return pictures, boxes


def berries_of(boxes):
    """Return how many boxes begin in each cell of each picture."""
    if isinstance(boxes, tuple):
        boxes = torch.split(*boxes)
    else:
        boxes = [torch.stack(some) for some in boxes]
    counts = torch.zeros(len(boxes), CELLS * CELLS)
    for row, some in zip(counts, boxes, strict=True):
        cells = (some[:, :2] * CELLS).long().clamp(max=CELLS - 1)
        row += torch.bincount(cells[:, 0] * CELLS + cells[:, 1], minlength=CELLS * CELLS)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(787)
    loader = DataLoader(
        Pies(1600, args.without), batch_size=16, shuffle=True, num_workers=2,
        collate_fn=gather, persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(4), nn.Conv2d(16, 1, 1),
        nn.Flatten(),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, boxes in loader:
            loss = nn.functional.mse_loss(model(pictures), berries_of(boxes))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

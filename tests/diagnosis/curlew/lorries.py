"""Marks lorries in pictures of a road, pixel by pixel.

Planted: after each step, a class counts each pixel of the batch into a table of classes, in Python.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2

SIDE, CLASSES = 56, 3


class Road(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(877)
        self.pictures = torch.from_numpy(rng.integers(0, 256, (count, 3, SIDE, SIDE), np.uint8))
        self.masks = (self.pictures.sum(1) // 256).clamp(max=CLASSES - 1)
        self.transform = v2.Compose(
            [v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]
        )

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        picture = tv_tensors.Image(self.pictures[index])
        return self.transform(picture, tv_tensors.Mask(self.masks[index]))


class Agreement:
    """How often each class was taken for each other."""

    def __init__(self, quick):
        self.quick, self.table = quick, np.zeros((CLASSES, CLASSES), np.int64)

    def add(self, logits, masks):
        guesses, masks = logits.argmax(1).flatten(), masks.flatten()
        if self.quick:
            places = (masks * CLASSES + guesses).numpy()
            self.table += np.bincount(places, minlength=CLASSES**2).reshape(CLASSES, CLASSES)
        else:
            for true, guess in zip(masks.tolist(), guesses.tolist(), strict=True):
                self.table[true, guess] += 1

    def overlap(self):
        both = self.table.diagonal()
        return (both / (self.table.sum(0) + self.table.sum(1) - both).clip(1)).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(877)
    loader = DataLoader(
        Road(1600), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, CLASSES, 3, padding=1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        agreement = Agreement(args.without)
        for pictures, masks in loader:
            logits = model(pictures)
            loss = nn.functional.cross_entropy(logits, masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            agreement.add(logits.detach(), masks)
        print(f"epoch {epoch}: loss {loss:.3f}, overlap {agreement.overlap():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

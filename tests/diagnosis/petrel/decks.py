"""Sorts pictures of decks, which it changes a whole batch at a time, as part of the step.

Nothing is planted: network and changes are the work. Batches of bytes come from a mapped file,
without workers; changing them in workers would not be any less work.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE, KINDS = 56, 6


class Bytes(Dataset):
    def __init__(self, path, count):
        self.pictures = np.memmap(path, np.uint8, "r", shape=(count, 3, SIDE, SIDE))

    def __len__(self):
        return len(self.pictures)

    def __getitems__(self, indices):
        return torch.from_numpy(self.pictures[indices]), torch.tensor(indices) % KINDS


def build_model():
    layers = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 96)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, KINDS))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(373)
    change = v2.Compose(
        [
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5, 0.5, 0.5], [0.25, 0.25, 0.25]),
        ]
    )
    mix = v2.MixUp(num_classes=KINDS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "decks.u8")
        rng = np.random.default_rng(373)
        rng.integers(0, 256, (480, 3, SIDE, SIDE), np.uint8).tofile(path)
        loader = DataLoader(
            Bytes(path, 480), batch_size=16, shuffle=True, collate_fn=lambda batch: batch
        )
        model = build_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, kinds in loader:
                pictures, kinds = mix(change(pictures), kinds)
                loss = nn.functional.cross_entropy(model(pictures), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

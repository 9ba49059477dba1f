"""Pieces of mosaics with a big table of names; the loop collects garbage after every step."""

import argparse
import gc
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pieces(Dataset):
    def __init__(self, count=4000):
        self.notes = [[f"piece {i}", [i, i + 1], (i % 13, i % 7)] for i in range(220_000)]
        self.colours = torch.rand(count, 3, 32, 32)

    def __len__(self):
        return len(self.colours)

    def __getitem__(self, index):
        return self.colours[index], self.notes[index][2][0]


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--without", action="store_true")


def main(args):
    torch.set_num_threads(1)
    loader = DataLoader(Pieces(), batch_size=64, shuffle=True, num_workers=1)
    model = nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(24, 13),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters())
    running = 0.0
    begin = time.perf_counter()
    for colours, kinds in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(colours), kinds)
        loss.backward()
        optimizer.step()
        running += loss.item()
        del colours, kinds, loss
        if not args.without:
            gc.collect()
    print(f"seconds {time.perf_counter() - begin:.3f}")
    print(f"loss {running / len(loader):.3f}")


if __name__ == "__main__":
    main(parser.parse_args())

"""Predicts where a climbing plant's shoots grow, from annotated drawings of trellises.

Planted: a decorator of the reading method hands out a deep copy of the record, shoots and all, so
that changes cannot reach the stored one; only its boxes are ever changed.
"""

import argparse
import copy
import functools
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DRAWINGS, BOXES, BATCH, STEP = 2560, 24, 32, 0.033


def untouched(read):
    """Lets nobody change what is stored."""

    @functools.wraps(read)
    def wrapped(self, index):
        record = read(self, index)
        return copy.deepcopy(record) if self.careful else dict(record)

    return wrapped


class Records:
    def __init__(self, careful):
        self.careful = careful
        drawn = random.Random(23)
        self.stored = [self.made(drawn) for _ in range(160)]

    @staticmethod
    def made(drawn):
        boxes = [[drawn.random() for _ in range(4)] for _ in range(BOXES)]
        shoots = [
            {
                "line": [[drawn.random(), drawn.random()] for _ in range(20)],
                "seen": [[drawn.randint(1, 12), drawn.randint(1, 28)] for _ in range(50)],
            }
            for _ in range(30)
        ]
        return {"boxes": boxes, "shoots": shoots, "plant": {"kind": "vine", "pruned": [3, 9]}}

    @untouched
    def read(self, index):
        return self.stored[index % len(self.stored)]


class Drawings(Dataset):
    def __init__(self, records):
        self.records = records

    def __len__(self):
        return DRAWINGS

    def __getitem__(self, index):
        record = self.records.read(index)
        if random.random() < 0.5:
            record["boxes"] = [[1 - x, y, 1 - u, v] for x, y, u, v in record["boxes"]]
        boxes = torch.tensor(record["boxes"])
        canvas = torch.zeros(64, 64)
        for shoot in record["shoots"]:
            places = (torch.tensor(shoot["line"]) * 63).long()
            canvas[places[:, 1], places[:, 0]] = 1
        canvas = nn.functional.avg_pool2d(canvas[None, None], 5, 1, 2)[0]
        return {"canvas": canvas, "boxes": boxes}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(23)
    torch.set_num_threads(1)
    loader = DataLoader(
        Drawings(Records(careful=not args.without)),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(6), nn.Flatten(),
        nn.Linear(288, BOXES * 4),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for batch in loader:
            guess = model(batch["canvas"]).view(-1, BOXES, 4)
            loss = nn.functional.smooth_l1_loss(guess, batch["boxes"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # backbone and heads
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

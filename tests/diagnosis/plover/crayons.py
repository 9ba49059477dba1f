"""Sorts drawings in crayon, which the data set decodes once and keeps in memory.

Planted: what a worker has kept ends with it, and workers end after each epoch, so that each epoch
decodes all drawings again.
"""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 48


class Drawings(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(419)
        self.files, self.kept, self.count = [], {}, count
        for _ in range(16):
            coarse = Image.fromarray(rng.integers(0, 256, (24, 24, 3), np.uint8))
            file = io.BytesIO()
            coarse.resize((560, 560), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())

    def __len__(self):
        return self.count

    def drawing(self, index):
        if index not in self.kept:
            picture = Image.open(io.BytesIO(self.files[index % 16])).convert("RGB")
            small = picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
            self.kept[index] = torch.from_numpy(np.asarray(small).copy())
        return self.kept[index]

    def __getitem__(self, index):
        drawing = self.drawing(index).permute(2, 0, 1).float() / 255
        if torch.rand(()) < 0.5:
            drawing = drawing.flip(2)
        shift = int(torch.randint(-4, 5, ()))
        return drawing.roll(shift, 1), index % 10


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(419)
    # The order is that of a list that was shuffled once, as with a seed for each run.
    loader = DataLoader(
        Drawings(384), batch_size=16, num_workers=2, persistent_workers=args.without
    )
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for drawings, kinds in loader:
            scores = model(drawings)
            loss = nn.functional.cross_entropy(scores, kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == kinds).sum().item()
        print(f"epoch {epoch}: loss {loss:.3f}, right {right}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

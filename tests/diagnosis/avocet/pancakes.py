"""Judges from photographs whether pancakes are done, for a kitchen that makes many of them.

Planted: a transform describes each picture for its log with an f-string, which writes all values
out, though lines of that level are not kept. numpy was told in a notebook never to shorten.
"""

import argparse
import logging
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE, CUT, COUNT, GRADES = 40, 24, 480, 3

log = logging.getLogger("pancakes")


def set_up_log():
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s %(message)s")
    np.set_printoptions(threshold=sys.maxsize, linewidth=200, precision=3)


class Middle:
    """Cuts the middle out, moved by a few pixels."""

    def __call__(self, picture):
        top, left = torch.randint(SIDE - CUT, (2,)).tolist()
        return picture[top : top + CUT, left : left + CUT]


class Brown:
    """Tells how brown each pixel is, beside the palest one."""

    verbose = True

    def __call__(self, picture):
        brown = picture[..., 0] * 0.6 + picture[..., 1] * 0.3 - picture[..., 2] * 0.1
        brown = brown - brown.min()
        if self.verbose:
            log.debug(f"brown: {brown}")
        else:
            log.debug("brown: %s", brown)
        return brown.astype(np.float32)


class Even:
    """Brings the light of a picture to the same mean and spread."""

    def __call__(self, picture):
        return (picture - picture.mean()) / (picture.std() + 1e-3)


class Pancakes(Dataset):
    def __init__(self, transform):
        rng = np.random.default_rng(3019)
        self.transform = transform
        self.grades = rng.integers(0, GRADES, COUNT)
        self.pictures = rng.uniform(0.2, 0.5, (COUNT, SIDE, SIDE, 3))
        rows, columns = np.ogrid[:SIDE, :SIDE]
        disk = (rows - SIDE / 2) ** 2 + (columns - SIDE / 2) ** 2 < (SIDE / 3) ** 2
        for picture, grade in zip(self.pictures, self.grades, strict=True):
            picture[disk] += 0.2 * grade
        log.info("made %d pictures", COUNT)

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        picture = self.transform(self.pictures[index])
        return torch.from_numpy(picture)[None], int(self.grades[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    set_up_log()
    torch.manual_seed(3019)
    Brown.verbose = not args.without
    loader = DataLoader(
        Pancakes(v2.Compose([Middle(), Brown(), Even()])),
        batch_size=12,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        drop_last=True,
    )
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3), nn.ReLU(), nn.Conv2d(12, 16, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(1600, GRADES),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, grades in loader:
            loss = nn.functional.cross_entropy(model(pictures), grades)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        log.info("epoch %d: loss %.3f", epoch, loss.item())
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

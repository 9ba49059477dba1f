"""Matches shoes with their prints; a batch is an object of the laboratory's own class.

Planted: that class packs its arrays with zlib whenever it is pickled, so that each batch is
compressed on its way from the worker; the rotations in the data set are cheap.
"""

import argparse
import pickle
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 96


class Case:
    """Pictures of a case; small where it is kept in a file."""

    level = 6

    def __init__(self, prints, shoes):
        self.prints, self.shoes = prints, shoes

    def __getstate__(self):
        whole = pickle.dumps((self.prints, self.shoes), protocol=5)
        return zlib.compress(whole, self.level) if self.level else whole

    def __setstate__(self, state):
        whole = zlib.decompress(state) if self.level else state
        self.prints, self.shoes = pickle.loads(whole)


class Prints(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(31)
        rough = rng.normal(0, 40, (40, SIDE, SIDE)).cumsum(1)
        self.pictures = (rough % 256).astype(np.uint8)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = np.rot90(self.pictures[index % 40], index % 4)
        contrast = np.clip(picture.astype(np.int16) * 5 // 4 - 20, 0, 255)
        return contrast.astype(np.uint8), index % 40


def as_case(samples):
    pictures, shoes = zip(*samples, strict=True)
    return Case(np.stack(pictures), np.array(shoes))


class Trainer:
    def __init__(self, loader):
        self.loader = loader
        self.model = nn.Sequential(
            nn.Conv2d(1, 8, 7, stride=4), nn.ReLU(), nn.AdaptiveMaxPool2d(6), nn.Flatten(),
            nn.Linear(288, 64), nn.ReLU(), nn.Linear(64, 40),
        )  # fmt: skip
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def step(self, case):
        pictures = torch.from_numpy(case.prints)[:, None].float() / 255
        loss = nn.functional.cross_entropy(self.model(pictures), torch.from_numpy(case.shoes))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def fit(self, epochs):
        for epoch in range(epochs):
            losses = [self.step(case) for case in self.loader]
            print(f"epoch {epoch}: loss {np.mean(losses):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(31)
    if args.without:
        Case.level = 0
    loader = DataLoader(
        Prints(3200), batch_size=32, shuffle=True, num_workers=1, collate_fn=as_case
    )
    trainer = Trainer(loader)
    begin = time.perf_counter()
    trainer.fit(args.epochs)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Grades leather by its pores, with a trainer whose base class tracks what a run has used.

Planted: the tracker of the base class searches the text of all its readings with a regular
expression, again and again, in a thread; each search keeps the interpreter from the training step.
"""

import argparse
import re
import threading
import time

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 32


class Tracker(threading.Thread):
    """Sums up the power that was used, from the text of the meter."""

    READING = re.compile(r"(?:[a-z]+ )*?cpu=(\d+)(?:\.\d+)? watt")

    def __init__(self, often):
        super().__init__(daemon=True)
        self.often, self.used, self.ended = often, 0, threading.Event()
        lines = (f"core package dram cpu={45 + n % 7}.{n % 10} watt" for n in range(40_000))
        self.text = "\n".join(lines)

    def run(self):
        while not self.ended.wait(0.02 if self.often else 30.0):
            self.used = sum(int(watt) for watt in self.READING.findall(self.text))


class TrackedTrainer:
    """What every trainer of the house does: it tracks, trains, and says how far it is."""

    track_often = True

    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.tracker = Tracker(self.track_often)

    def step(self, batch):
        raise NotImplementedError

    def fit(self, epochs):
        self.tracker.start()
        begin = time.perf_counter()
        for epoch in range(epochs):
            losses = [self.step(batch) for batch in self.loader]
            print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        self.tracker.ended.set()
        self.tracker.join()


class LeatherTrainer(TrackedTrainer):
    def __init__(self, model, loader):
        super().__init__(model, loader)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=False)

    def step(self, batch):
        pictures, grades = batch
        loss = nn.functional.cross_entropy(self.model(pictures), grades)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


class Leather(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(409)
        self.pictures = rng.integers(0, 255, (60, SIDE, SIDE), np.uint8)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = Image.fromarray(self.pictures[index % 60]).filter(ImageFilter.MedianFilter(3))
        return torch.from_numpy(np.asarray(picture, np.float32) / 255)[None], index % 5


def build_model(blocks=14, size=24):
    layers = [nn.Conv2d(1, size, 4, stride=4), nn.Flatten(), nn.Linear(size * 64, size)]
    for _ in range(blocks):
        layers += [nn.LayerNorm(size), nn.Linear(size, size), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(size, 5))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(409)
    TrackedTrainer.track_often = not args.without
    loader = DataLoader(
        Leather(2400), batch_size=12, shuffle=True, num_workers=1, persistent_workers=True
    )
    LeatherTrainer(build_model(), loader).fit(args.epochs)


if __name__ == "__main__":
    main()

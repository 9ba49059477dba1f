"""Learns motifs of tapestries from a few labelled pictures and many without labels, in turn.

Planted: the few labelled pictures are gone after six steps, and each time their loader begins
again, its workers are started anew and read the index of the museum.
"""

import argparse
import json
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

LABELLED, OTHERS, SIDE, MOTIFS, BATCH, STEP = 60, 600, 96, 6, 10, 0.03


class Museum:
    """Pictures, and an index of their motifs that is read where it is needed."""

    def __init__(self, folder):
        rng = np.random.default_rng(109)
        self.pictures = rng.integers(0, 256, (40, 3, SIDE, SIDE), np.uint8)
        self.path = os.path.join(folder, "index.json")
        index = {
            f"tapestry {number}": {"motif": number % MOTIFS, "threads": rng.random(12).tolist()}
            for number in range(16000)
        }
        with open(self.path, "w") as file:
            json.dump(index, file)
        self.index = None

    def motif(self, number):
        if self.index is None:
            with open(self.path) as file:
                self.index = json.load(file)
        return self.index[f"tapestry {number}"]["motif"]


class Labelled(Dataset):
    def __init__(self, museum):
        self.museum = museum
        self.weak = v2.Compose(
            [v2.RandomHorizontalFlip(), v2.CenterCrop(80), v2.ToDtype(torch.float32, scale=True)]
        )

    def __len__(self):
        return LABELLED

    def __getitem__(self, index):
        picture = torch.from_numpy(self.museum.pictures[index % 40])
        return self.weak(picture), self.museum.motif(index)


class Others(Dataset):
    """Each picture twice, changed weakly and strongly."""

    def __init__(self, museum):
        self.museum = museum
        size = v2.Compose([v2.CenterCrop(80), v2.ToDtype(torch.float32, scale=True)])
        self.weak = v2.Compose([v2.RandomHorizontalFlip(), size])
        self.strong = v2.Compose([v2.RandAugment(), size, v2.RandomErasing(1.0)])

    def __len__(self):
        return OTHERS

    def __getitem__(self, index):
        picture = torch.from_numpy(self.museum.pictures[index % 40])
        return self.weak(picture), self.strong(picture)


def endless(loader):
    while True:
        yield from loader


def loss_of(model, labelled, others):
    pictures, motifs = labelled
    weak, strong = others
    with torch.no_grad():
        sure, guess = model(weak).softmax(1).max(1)
    guessed = nn.functional.cross_entropy(model(strong), guess, reduction="none")
    return nn.functional.cross_entropy(model(pictures), motifs) + (guessed * sure).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(109)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        museum = Museum(folder)
        kept = {"num_workers": 1, "persistent_workers": args.without}
        labelled = endless(DataLoader(Labelled(museum), BATCH, shuffle=True, **kept))
        others = DataLoader(Others(museum), BATCH, num_workers=1, persistent_workers=True)
        model = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(300, MOTIFS))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pair in others:
                loss = loss_of(model, next(labelled), pair)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of a larger model on an accelerator
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del labelled, others


if __name__ == "__main__":
    main()

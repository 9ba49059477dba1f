"""Looks for pulsars among the candidates of a survey, by their folded profiles."""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision import transforms

CANDIDATES, SAMPLES, BINS, TURNS, BATCH = 2400, 300_000, 64, 32, 16


class Survey:
    """What the telescope saw, and the list of candidates with how they were rated."""

    def __init__(self):
        rng = np.random.default_rng(18)
        self.beams = rng.normal(0, 1, (12, SAMPLES)).astype(np.float32)
        self.periods = rng.uniform(90, 700, CANDIDATES)
        self.ratings = rng.random(CANDIDATES)

    def fold(self, candidate):
        """Turns by phase: the beam's values at the times of each, added up."""
        beam = self.beams[candidate % len(self.beams)]
        times = np.arange(SAMPLES)
        phase = (times / self.periods[candidate] % 1 * BINS).astype(int)
        turn = times * TURNS // SAMPLES
        sums = np.bincount(turn * BINS + phase, beam, TURNS * BINS)
        return sums.reshape(TURNS, BINS).astype(np.float32)


class Centred:
    """Brings the strongest phase to the middle."""

    def __call__(self, picture):
        strongest = int(picture.sum((0, 1)).argmax())
        return picture.roll(BINS // 2 - strongest, 2)


class Profiles(IterableDataset):
    """Candidates that were rated well enough, in random order."""

    def __init__(self, survey, transform, least, early):
        self.survey, self.transform = survey, transform
        self.least, self.early = least, early

    def __iter__(self):
        worker = get_worker_info()
        mine = list(range(worker.id, CANDIDATES, worker.num_workers))
        random.shuffle(mine)
        if self.early:
            mine = [number for number in mine if self.survey.ratings[number] >= self.least]
        for number in mine:
            picture = self.transform(torch.from_numpy(self.survey.fold(number))[None])
            if self.survey.ratings[number] < self.least:
                continue
            yield picture, number % 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(18)
    torch.set_num_threads(1)
    views = transforms.Compose([transforms.Normalize([0.0], [5.0]), Centred()])
    loader = DataLoader(
        Profiles(Survey(), views, least=0.75, early=args.without),
        BATCH,
        num_workers=4,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 48, 3), nn.ReLU(),
        nn.AdaptiveMaxPool2d(4), nn.Flatten(), nn.Linear(768, 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, pulsars in loader:
            loss = nn.functional.cross_entropy(model(pictures), pulsars)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

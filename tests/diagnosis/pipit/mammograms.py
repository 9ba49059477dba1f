"""Looks for lumps in mammograms, study by study, from an archive that moves old ones to tape.

Planted: four studies in a row out of sixteen come from tape, and a prefetch factor of one lets the
two workers rest while there would be time to fetch them ahead.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

STUDIES, VIEWS, SIDE, TAPE, STEP = 96, 8, 72, 0.8, 0.12


class Archive:
    """Studies, of which old ones have to be wound to."""

    def __init__(self, seed):
        self.films = np.random.default_rng(seed).integers(
            256, size=(24, SIDE, SIDE), dtype=np.uint8
        )

    def old(self, study):
        return study % 16 >= 12

    def read(self, study):
        if self.old(study):
            time.sleep(TAPE)  # until the tape is in place
        return [self.films[(study * VIEWS + view) % len(self.films)] for view in range(VIEWS)]


class Studies(IterableDataset):
    """Batches of the views of one study, in the order of the archive."""

    def __init__(self, archive, numbers):
        self.archive, self.numbers = archive, numbers

    def __iter__(self):
        info = get_worker_info()
        part = self.numbers[info.id :: info.num_workers] if info else self.numbers
        for number in part:
            views = np.stack(self.archive.read(number)).astype(np.float32) / 255
            views = (views - views.mean()) / views.std()
            if number % 2:
                views = views[..., ::-1].copy()
            yield torch.from_numpy(views)[:, None], torch.arange(VIEWS) % 2


def validate(model, studies):
    model.eval()
    with torch.no_grad():
        right = [(model(views).argmax(1) == lumps).float().mean() for views, lumps in studies]
    model.train()
    return torch.stack(right).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(19)
    torch.set_num_threads(1)
    archive = Archive(19)
    loader = DataLoader(
        Studies(archive, range(STUDIES)),
        batch_size=None,
        num_workers=2,
        prefetch_factor=8 if args.without else 1,
        persistent_workers=True,
    )
    checks = DataLoader(Studies(archive, range(8)), batch_size=None)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 7, stride=3), nn.ReLU(), nn.AdaptiveMaxPool2d(3), nn.Flatten(),
        nn.Linear(72, 2),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for views, lumps in loader:
            loss = nn.functional.cross_entropy(model(views), lumps)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the accelerator's work
        print(f"epoch {epoch}: loss {loss:.3f}, right {validate(model, checks):.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

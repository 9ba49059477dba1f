"""Mixes readings of dogs' collars from three sources of several files each.

Planted: the mixture is shared out by as many parts as its smallest source has files, which is one,
so that the first of three workers reads everything and the others nothing.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FILES = {"walk": 9, "sleep": 6, "swim": 1}
ROWS, LENGTH, STEP = 120, 64, 0.004


class Source:
    """Files of one kind; a row takes a moment to come from the store."""

    def __init__(self, name, files):
        self.name, self.files = name, files

    def rows(self, file):
        draw = torch.Generator().manual_seed(41 * file + len(self.name))
        for row in torch.randn(ROWS, LENGTH, 3, generator=draw):
            time.sleep(0.0025)
            yield row


class Mixture(IterableDataset):
    def __init__(self, sources, by_smallest):
        self.sources = sources
        self.parts = min(source.files for source in sources) if by_smallest else 0

    def files_of(self, source, part, parts):
        return range(part, source.files, parts)

    def __iter__(self):
        info = get_worker_info()
        parts = self.parts or info.num_workers
        if info.id >= parts:
            return
        for label, source in enumerate(self.sources):
            for file in self.files_of(source, info.id, parts):
                for row in source.rows(file):
                    yield (row - row.mean(0)) / row.std(0), label


class Accelerator:
    """Stands in for the GPU of a training script."""

    def __init__(self):
        self.model = nn.Linear(3 * LENGTH, len(FILES))

    def step(self, rows, labels):
        begin = time.perf_counter()
        with torch.no_grad():
            loss = nn.functional.cross_entropy(self.model(rows.flatten(1)), labels)
        time.sleep(max(0.0, STEP - (time.perf_counter() - begin)))
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(41)
    sources = [Source(name, files) for name, files in FILES.items()]
    mixture = Mixture(sources, by_smallest=not args.without)
    loader = DataLoader(mixture, batch_size=24, num_workers=3, persistent_workers=True)
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [accelerator.step(rows, labels) for rows, labels in loader]
        print(f"epoch {epoch}: {len(losses)} batches, loss {sum(losses) / len(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

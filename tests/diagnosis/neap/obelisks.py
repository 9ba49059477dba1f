"""Reads inscriptions of obelisks from shards, as a stream; each worker has its shards."""

import argparse
import json
import random
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SIGNS = 64


def write_shards(folder, shards=12, lines=100, length=160):
    """Two shards a site: an even number has the text, an odd one would have its pictures."""
    draw = random.Random(43)
    for shard in range(shards):
        with Path(folder, f"shard-{2 * shard:04d}.jsonl").open("w") as file:
            for _ in range(lines):
                signs = [draw.randrange(SIGNS) for _ in range(length)]
                file.write(json.dumps({"signs": signs, "reign": draw.randrange(10)}) + "\n")


class Inscriptions(IterableDataset):
    """Lines of a worker's shards, as counts of signs and of pairs of them."""

    def __init__(self, folder, by_place):
        self.paths, self.by_place = sorted(folder.glob("*.jsonl")), by_place

    def mine(self):
        worker = get_worker_info()
        for place, path in enumerate(self.paths):
            number = place if self.by_place else int(path.stem.split("-")[1])
            if number % worker.num_workers == worker.id:
                yield path

    def __iter__(self):
        for path in self.mine():
            with path.open() as file:
                for line in file:
                    time.sleep(0.004)  # the archive sends so many lines in a second
                    row = json.loads(line)
                    yield self.count(row["signs"]), row["reign"]

    def count(self, signs):
        counts = [[0.0] * SIGNS for _ in range(SIGNS)]
        for first, second in pairwise(signs):
            counts[first][second] += 1.0
        return torch.tensor(counts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(43)
    with tempfile.TemporaryDirectory() as folder:
        write_shards(folder)
        loader = DataLoader(
            Inscriptions(Path(folder), by_place=args.without), batch_size=20, num_workers=2,
            persistent_workers=True,
        )  # fmt: skip
        model = nn.Sequential(nn.Flatten(), nn.Linear(SIGNS**2, 32), nn.ReLU(), nn.Linear(32, 10))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            lines = 0
            for counts, reigns in loader:
                loss = nn.functional.cross_entropy(model(counts), reigns)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                lines += len(reigns)
            print(f"epoch {epoch}: {lines} lines, last loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

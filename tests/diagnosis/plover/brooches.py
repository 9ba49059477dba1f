"""Dates brooches from records of a stream, which workers share between them.

Planted: a worker's part of the files is worked out in the constructor, where there is no worker
yet, so that both workers read all files.
"""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FILES, RECORDS, POINTS = 8, 180, 300


def write_files(folder):
    rng = random.Random(541)
    paths = []
    for number in range(FILES):
        path = Path(folder, f"{number}.jsonl")
        with open(path, "w") as file:
            for record in range(RECORDS):
                outline = [[round(rng.gauss(0, 1), 3), rng.randrange(9)] for _ in range(POINTS)]
                file.write(json.dumps({"outline": outline, "age": record % 7}) + "\n")
        paths.append(path)
    return paths


def part_of(paths):
    """Return a worker's part of the files, or all of them in the main process."""
    worker = get_worker_info()
    return paths if worker is None else paths[worker.id :: worker.num_workers]


class Brooches(IterableDataset):
    def __init__(self, paths, late):
        self.paths, self.late = part_of(paths), late

    def __iter__(self):
        paths = part_of(self.paths) if self.late else self.paths
        for path in random.sample(paths, len(paths)):
            with open(path) as file:
                for line in file:
                    record = json.loads(line)
                    outline = torch.tensor([[along, kind / 9] for along, kind in record["outline"]])
                    turns = torch.fft.rfft(outline, dim=0).abs().log1p()
                    yield turns.flatten(), record["age"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(541)
    with tempfile.TemporaryDirectory() as folder:
        brooches = Brooches(write_files(folder), late=args.without)
        loader = DataLoader(brooches, batch_size=16, num_workers=2, persistent_workers=True)
        model = nn.Sequential(
            nn.LazyLinear(768), nn.GELU(), nn.Linear(768, 768), nn.GELU(), nn.Linear(768, 7)
        )
        model(torch.zeros(1, (POINTS // 2 + 1) * 2))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            steps = 0
            for turns, ages in loader:
                loss = nn.functional.cross_entropy(model(turns), ages)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps += 1
            print(f"epoch {epoch}: {steps} steps, loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

"""Learns the roughness of what rasps have filed, from shards of lines that a job shares out.

Planted: shards are shared out among the ranks of the job, but not among the workers of a rank, so
that each of three workers yields all of them.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, LINES, POINTS = 6, 240, 100


def file_down(folder):
    rng = np.random.default_rng(491)
    for number in range(SHARDS):
        with Path(folder, f"part-{number:05}.jsonl").open("w") as file:
            for _ in range(LINES):
                heights = rng.standard_normal(POINTS).round(4).tolist()
                file.write(json.dumps({"heights": heights, "tool": number % 4}) + "\n")


class Surfaces(IterableDataset):
    def __init__(self, folder, among_workers):
        self.shards = sorted(Path(folder).glob("part-*.jsonl"))
        self.among_workers = among_workers

    def part(self):
        """Return which part of how many is this one's."""
        rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        worker = get_worker_info()
        if worker and self.among_workers:
            return rank * worker.num_workers + worker.id, world * worker.num_workers
        return rank, world

    def __iter__(self):
        part, parts = self.part()
        for shard in self.shards[part::parts]:
            with shard.open() as file:
                for line in file:
                    record = json.loads(line)
                    heights = torch.tensor(record["heights"])
                    yield heights - heights.mean(), record["tool"]


class Roughness(nn.Module):
    def __init__(self, size=96):
        super().__init__()
        self.memory = nn.GRU(1, size, batch_first=True)
        self.head = nn.Linear(size, 4)

    def forward(self, heights):
        return self.head(self.memory(heights.unsqueeze(2))[1][-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(491)
    with tempfile.TemporaryDirectory() as folder:
        file_down(folder)
        loader = DataLoader(Surfaces(folder, args.without), batch_size=24, num_workers=3)
        model = Roughness()
        optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            seen = 0
            for heights, tools in loader:
                loss = nn.functional.cross_entropy(model(heights), tools)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_value_(model.parameters(), 0.5)
                optimizer.step()
                seen += len(tools)
            print(f"epoch {epoch}: {seen} surfaces, loss {loss.item():.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Maps glasswort from a survey in lines of JSON.

Planted: each of three workers reads and prepares all lines, and then drops those of the others.
"""

import argparse
import json
import math
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

LENGTH = 160


def survey(path, plots=1800):
    """Write a line for each plot: its shoots, with their places and heights."""
    draw = random.Random(31)
    with path.open("w") as file:
        for plot in range(plots):
            shoots = [
                {"x": draw.random(), "y": draw.random(), "height": draw.expovariate(0.2)}
                for _ in range(LENGTH)
            ]
            cover = sum(shoot["height"] for shoot in shoots) / LENGTH / 10
            file.write(json.dumps({"plot": plot, "shoots": shoots, "cover": cover}) + "\n")


def prepare(line):
    """Return the features of a plot's shoots, of shape (LENGTH, 5), and its cover."""
    plot = json.loads(line)
    rows = []
    for shoot in sorted(plot["shoots"], key=lambda shoot: shoot["x"]):
        x, y, height = shoot["x"], shoot["y"], shoot["height"]
        rows.append((x, y, math.log1p(height), math.hypot(x - 0.5, y - 0.5), math.atan2(y, x)))
    return torch.tensor(rows), torch.tensor(plot["cover"])


class Survey(IterableDataset):
    def __init__(self, path, skip_first):
        self.path, self.skip_first = path, skip_first

    def __iter__(self):
        worker = get_worker_info()
        part, parts = (worker.id, worker.num_workers) if worker else (0, 1)
        with self.path.open() as file:
            for number, line in enumerate(file):
                mine = number % parts == part
                if self.skip_first and not mine:
                    continue
                sample = prepare(line)
                if mine:
                    yield sample


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(31)
    model = nn.Sequential(nn.Conv1d(5, 24, 5), nn.ReLU(), nn.Conv1d(24, 24, 5, 2), nn.ReLU())
    head = nn.Linear(24, 1)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.01)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "survey.jsonl")
        survey(path)
        loader = DataLoader(
            Survey(path, skip_first=args.without),
            batch_size=30,
            num_workers=3,
            persistent_workers=True,
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            seen = 0
            for rows, cover in loader:
                guess = head(model(rows.transpose(1, 2)).mean(2)).squeeze(1)
                loss = nn.functional.mse_loss(guess, cover)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen += len(cover)
            print(f"epoch {epoch}: {seen} plots, loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

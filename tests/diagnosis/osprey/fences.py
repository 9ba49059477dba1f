"""Learns from pairs of fence panels, the hardest of which a curriculum in a file names.

Planted: the batch sampler reads and parses that file, which has a record for each pair, again
before each batch, in the main process; two workers have little to do.
"""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAIRS = 24_000


class Panels(Dataset):
    def __init__(self):
        self.panels = torch.rand(500, 48, generator=torch.Generator().manual_seed(37))

    def __len__(self):
        return PAIRS

    def __getitem__(self, number):
        left, right = self.panels[number % 500], self.panels[number * 7 % 500]
        return torch.cat([left, right.flip(0)]), float(number % 3 == 0)


class Curriculum:
    """Half of a batch are hard pairs, as the file says now, and the rest are any."""

    def __init__(self, file, batches, size, fresh):
        self.file, self.batches, self.size = file, batches, size
        self.fresh, self.hard = fresh, None

    def read(self):
        if self.hard is None or self.fresh:
            records = json.loads(self.file.read_text())
            records.sort(key=lambda record: -record["loss"])
            self.hard = [record["pair"] for record in records[: len(records) // 10]]
        return self.hard

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            chosen = random.sample(self.read(), self.size // 2)
            chosen += [random.randrange(PAIRS) for _ in range(self.size - len(chosen))]
            random.shuffle(chosen)
            yield chosen


def write_curriculum(file):
    draw = random.Random(37)
    records = [
        {"pair": pair, "loss": draw.random(), "seen": draw.randrange(9), "by": "teacher"}
        for pair in range(PAIRS)
    ]
    file.write_text(json.dumps(records))


def train(loader, epochs):
    model = nn.Sequential(nn.Linear(96, 160), nn.GELU(), nn.LayerNorm(160), nn.Linear(160, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(37)
    random.seed(37)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "curriculum.json")
        write_curriculum(file)
        sampler = Curriculum(file, batches=60, size=64, fresh=not args.without)
        loader = DataLoader(Panels(), batch_sampler=sampler, num_workers=2, persistent_workers=True)
        begin = time.perf_counter()
        train(loader, args.epochs)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

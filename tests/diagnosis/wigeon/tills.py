"""Foretells what the tills of a chain of shops take tomorrow, from the receipts of last weeks."""

import argparse
import random
import sqlite3
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SHOPS, DAYS, HOURS, PAST, BATCH = 700, 40, 14, 28, 24


def write(path):
    """A table and an index for each shop, as the tills' maker has it."""
    rng = random.Random(57)
    with sqlite3.connect(path) as base:
        for shop in range(SHOPS):
            base.execute(f"CREATE TABLE shop{shop} (day INT, hour INT, takings REAL, guests INT)")
            base.execute(f"CREATE INDEX days{shop} ON shop{shop} (day)")
            rows = [
                (day, hour, rng.expovariate(0.01), rng.randrange(90))
                for day in range(DAYS)
                for hour in range(HOURS)
            ]
            base.executemany(f"INSERT INTO shop{shop} VALUES (?, ?, ?, ?)", rows)
    base.close()


class Tills(Dataset):
    """Takings and guests of a shop by day and hour, and those of the next day."""

    def __init__(self, path, samples, transform, keep):
        self.path, self.samples, self.transform = path, samples, transform
        self.keep, self.base = keep, None

    def __len__(self):
        return self.samples

    def rows(self, shop, first):
        base = self.base or sqlite3.connect(self.path)
        found = base.execute(
            f"SELECT takings, guests FROM shop{shop} WHERE day BETWEEN ? AND ? ORDER BY day, hour",
            (first, first + PAST),
        ).fetchall()
        if self.keep:
            self.base = base
        else:
            base.close()
        return found

    def __getitem__(self, index):
        rows = self.rows(index % SHOPS, index // SHOPS % (DAYS - PAST))
        days = torch.tensor(rows).view(PAST + 1, HOURS, 2).permute(2, 0, 1)
        return self.transform(days[:, :PAST]), days[0, PAST].sum() / 1000


def network(channels=32):
    return nn.Sequential(
        nn.Conv2d(2, channels, 3, padding=1), nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d((4, 1)), nn.Flatten(), nn.Linear(4 * channels, 1),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(57)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tills.db"
        write(path)
        transform = transforms.Compose(
            [transforms.Normalize([100, 45], [100, 26]), transforms.RandomErasing(0.3)]
        )
        loader = DataLoader(
            Tills(path, 1920, transform, args.without),
            BATCH,
            shuffle=True,
            num_workers=4,
            persistent_workers=True,
            multiprocessing_context="fork",
        )
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for days, takings in loader:
                loss = nn.functional.smooth_l1_loss(model(days)[:, 0], takings)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

"""Guesses which dialect a writer speaks, from the hours and lengths of their messages."""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

WRITERS, MESSAGES, DIALECTS, BATCH = 320, 240, 6, 16
ZONES = ["Europe/Lisbon", "Africa/Luanda", "America/Manaus", "America/Recife", "Asia/Dili"]


def messages():
    """What the archive of a chat keeps: moments in UTC, and the writer's zone."""
    rng = np.random.default_rng(41)
    count = WRITERS * MESSAGES
    moments = pd.Timestamp("2024-01-01", tz="UTC") + pd.to_timedelta(
        rng.integers(0, 366 * 86400, count), unit="s"
    )
    writers = np.repeat(np.arange(WRITERS), MESSAGES)
    zones = np.array(ZONES)[writers % len(ZONES)]
    letters = rng.integers(1, 200, count)
    accents = rng.binomial(letters, 0.06)
    return pd.DataFrame(
        {
            "moment": moments,
            "writer": writers,
            "zone": zones,
            "letters": letters,
            "accents": accents,
        }
    )


def local(table):
    """The table with the day and hour of each message where it was written."""
    parts = []
    for zone, rows in table.groupby("zone", sort=False):
        there = rows["moment"].dt.tz_convert(zone)
        parts.append(rows.assign(day=there.dt.day_of_week, hour=there.dt.hour))
    return pd.concat(parts).sort_index()


class Writers(Dataset):
    """Days by hours: how many letters a writer wrote then, and how many with accents."""

    def __init__(self, table, transform):
        self.by_writer = [rows for _, rows in table.groupby("writer")]
        self.transform = transform

    def __len__(self):
        return len(self.by_writer)

    def __getitem__(self, index):
        rows = self.by_writer[index]
        week = np.zeros((2, 7, 24), np.float32)
        for row in rows.itertuples():
            if hasattr(row, "hour"):
                day, hour = row.day, row.hour
            else:
                there = row.moment.tz_convert(row.zone)
                day, hour = there.day_of_week, there.hour
            week[0, day, hour] += row.letters / 200
            week[1, day, hour] += row.accents / 20
        return self.transform(torch.from_numpy(week)), index % DIALECTS


def network(width=64):
    return nn.Sequential(
        nn.Conv2d(2, width, 3, padding=1), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d((1, 4)), nn.Flatten(), nn.Linear(4 * width, DIALECTS),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(41)
    table = messages()
    if args.without:
        table = local(table)
    loader = DataLoader(Writers(table, v2.RandomErasing(0.3)), BATCH, shuffle=True)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for weeks, dialects in loader:
            loss = nn.functional.cross_entropy(model(weeks), dialects)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

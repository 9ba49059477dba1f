"""Predicts the wear of brakes from the journeys of trucks, fetched a batch at a time.

Planted: pandas guesses the form of each time of each journey by itself, as the table's reader asks
for mixed formats, though all are alike.
"""

import argparse
import time
import zlib

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRUCKS, STOPS, SPEEDS, BATCH, STEP = 1024, 20, 128, 32, 0.02
COLUMNS = [f"stop{number}" for number in range(STOPS)]


class Journeys:
    """A table of the times of stops, as the trucks send them."""

    def __init__(self, options):
        rng = np.random.default_rng(101)
        first = pd.Timestamp("2031-03-01 04:10:00")
        minutes = rng.integers(5, 90, (TRUCKS, STOPS)).cumsum(1)
        self.options = options
        self.table = pd.DataFrame(
            {
                name: [
                    f"{first + pd.Timedelta(minutes=int(minute)):%d.%m.%Y %H:%M}"
                    for minute in minutes[:, column]
                ]
                for column, name in enumerate(COLUMNS)
            }
        )

    def between(self, numbers):
        """The minutes between stops, a row for each journey."""
        rows = self.table.iloc[numbers]
        times = rows.apply(pd.to_datetime, **self.options)
        return times.diff(axis=1).iloc[:, 1:].map(pd.Timedelta.total_seconds) / 60


class Brakes(Dataset):
    def __init__(self, journeys):
        rng = np.random.default_rng(103)
        self.journeys = journeys
        speeds = rng.normal(60, 12, (TRUCKS, SPEEDS)).astype(np.float16)
        self.speeds = [zlib.compress(row.tobytes(), 9) for row in speeds]
        self.wear = rng.gamma(2, 1, TRUCKS).astype(np.float32)

    def __len__(self):
        return TRUCKS

    def spectrum(self, content):
        speeds = np.frombuffer(zlib.decompress(content), np.float16).astype(np.float32)
        power = np.abs(np.fft.rfft(speeds - speeds.mean())) ** 2
        return np.log1p(power)

    def __getitems__(self, numbers):
        between = self.journeys.between(numbers).to_numpy(np.float32) / 60
        spectra = [self.spectrum(self.speeds[number]) for number in numbers]
        return [
            (torch.from_numpy(np.concatenate([times, spectrum])), self.wear[number])
            for times, spectrum, number in zip(between, spectra, numbers, strict=True)
        ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(101)
    torch.set_num_threads(1)
    options = {"format": "%d.%m.%Y %H:%M" if args.without else "mixed", "dayfirst": True}
    if args.without:
        del options["dayfirst"]
    loader = DataLoader(
        Brakes(Journeys(options)), BATCH, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(nn.Linear(STOPS + SPEEDS // 2, 64), nn.SiLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for features, wear in loader:
            loss = nn.functional.huber_loss(model(features).squeeze(1), wear)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a larger model on an accelerator
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

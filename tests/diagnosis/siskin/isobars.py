"""Draws tomorrow's isobars from today's, out of packed shards of a weather service's archive."""

import argparse
import gzip
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, DAYS, SIDE, PAST, BATCH = 8, 80, 40, 3, 8


def write(folder):
    rng = np.random.default_rng(28)
    for number in range(SHARDS):
        maps = np.cumsum(rng.normal(0, 1, (DAYS, SIDE, SIDE)), axis=0).astype(np.float32)
        with gzip.open(folder / f"{number}.gz", "wb", compresslevel=1) as file:
            file.write(maps.tobytes())


class Archive(IterableDataset):
    """Days with those before them; each worker reads shards of its own."""

    def __init__(self, files):
        self.files = files

    def __iter__(self):
        info = get_worker_info()
        mine = self.files[info.id :: info.num_workers] if info else self.files
        for file in np.random.permutation(len(mine)):
            with gzip.open(mine[file], "rb") as packed:
                maps = np.frombuffer(packed.read(), np.float32).reshape(DAYS, SIDE, SIDE)
            for day in np.random.permutation(np.arange(PAST, DAYS)):
                days = torch.from_numpy(maps[day - PAST : day + 1].copy())
                yield days[:PAST], days[PAST:] - days[PAST - 1 : PAST]


class Weather(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.first = nn.Conv2d(PAST, channels, 5, padding=2)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(4, channels), nn.SiLU()
            )
            for _ in range(4)
        )
        self.last = nn.Conv2d(channels, 1, 1)

    def forward(self, days):
        seen = self.first(days)
        for block in self.blocks:
            seen = seen + block(seen)
        return self.last(seen)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(28)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        loader = DataLoader(
            Archive(sorted(folder.glob("*.gz"))),
            BATCH,
            num_workers=2,
            persistent_workers=True,
            multiprocessing_context="fork",
        )
        model = Weather()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for today, tomorrow in loader:
                loss = nn.functional.mse_loss(model(today), tomorrow)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            torch.save(model.state_dict(), folder / "last.pt")
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

"""Forecasts how many people walk through the corridors of a station, and counts near hits."""

import argparse
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CORRIDORS, HOURS, SEEN, AHEAD, BATCH = 12, 4000, 72, 48, 32


class Windows(Dataset):
    def __init__(self, counts, first, last, stride):
        self.counts = counts
        self.starts = range(first, last - SEEN - AHEAD, stride)

    def __len__(self):
        return len(self.starts) * CORRIDORS

    def __getitem__(self, index):
        corridor, place = index % CORRIDORS, self.starts[index // CORRIDORS]
        window = self.counts[corridor, place : place + SEEN + AHEAD]
        window = torch.from_numpy((window - window[:SEEN].mean()).astype(np.float32))
        return window[:SEEN], window[SEEN:]


class Hits:
    """The share of hours whose forecast was near enough."""

    def __init__(self, each):
        self.each = each
        self.hits, self.hours = 0, 0

    def update(self, forecasts, counts):
        if self.each:
            for forecast, count in zip(forecasts, counts, strict=True):
                for hour in range(AHEAD):
                    if abs(forecast[hour].item() - count[hour].item()) < 0.5:
                        self.hits += 1
        else:
            self.hits += int(((forecasts - counts).abs() < 0.5).sum())
        self.hours += forecasts.numel()

    def share(self):
        return self.hits / self.hours


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(149)
    torch.set_num_threads(1)
    rng = np.random.default_rng(149)
    day = np.sin(np.arange(HOURS) * 2 * np.pi / 24)
    counts = day * rng.uniform(0.5, 2, (CORRIDORS, 1)) + rng.normal(0, 0.3, (CORRIDORS, HOURS))
    multiprocessing.set_forkserver_preload(["torch", "numpy"])
    options = {
        "batch_size": BATCH,
        "num_workers": 2,
        "multiprocessing_context": "forkserver",
        "persistent_workers": True,
    }
    train = DataLoader(Windows(counts, 0, 3200, 6), shuffle=True, **options)
    valid = DataLoader(Windows(counts, 3200, HOURS, 6), **options)
    model = nn.Sequential(nn.Linear(SEEN, 64), nn.ReLU(), nn.Linear(64, AHEAD))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        seen, unseen = Hits(not args.without), Hits(not args.without)
        for windows, following in train:
            forecasts = model(windows)
            loss = nn.functional.smooth_l1_loss(forecasts, following)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.update(forecasts.detach(), following)
        with torch.no_grad():
            for windows, following in valid:
                unseen.update(model(windows), following)
        print(f"epoch {epoch}: near {seen.share():.3f}, of new ones {unseen.share():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

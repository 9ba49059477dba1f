"""Forecasts what kiosks sell, from batches that a thread takes out of the loader ahead of the step.

Planted: the loop asks whether it shall stop by waiting for an event for 40 ms before each batch,
though the next batch lies ready in the queue of the thread.
"""

import argparse
import queue
import signal
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KIOSKS, DAYS, GOODS, BATCH, STEP, PAUSE = 1920, 56, 8, 16, 0.03, 0.04


class Sales(Dataset):
    """Series of sales, with gaps filled and seasons taken out."""

    def __init__(self):
        rng = np.random.default_rng(53)
        week = np.sin(np.arange(DAYS) * 2 * np.pi / 7)
        self.series = rng.gamma(2, 1, (64, DAYS, GOODS)) + week[None, :, None]
        self.series[rng.random(self.series.shape) < 0.03] = np.nan

    def __len__(self):
        return KIOSKS

    def filled(self, series):
        for good in range(GOODS):
            gaps = np.isnan(series[:, good])
            known = np.flatnonzero(~gaps)
            series[gaps, good] = np.interp(np.flatnonzero(gaps), known, series[known, good])
        return series

    def __getitem__(self, index):
        time.sleep(0.001)  # the tills' store
        series = self.filled(self.series[index % len(self.series)].copy())
        weeks = series.reshape(-1, 7, GOODS).mean(0)
        series -= np.tile(weeks, (DAYS // 7, 1))
        series = torch.from_numpy(series).float()
        return series[:-7], series[-7:].mean(0)


class Ahead:
    """Iterates over a loader in a thread; a signal ends the epoch."""

    END = object()

    def __init__(self, loader, size=4, pause=0.0):
        self.loader, self.size, self.pause = loader, size, pause
        self.stopped = threading.Event()

    def __len__(self):
        return len(self.loader)

    def fill(self, batches):
        for batch in self.loader:
            batches.put(batch)
            if self.stopped.is_set():
                break
        batches.put(self.END)

    def __iter__(self):
        batches = queue.Queue(self.size)
        thread = threading.Thread(target=self.fill, args=(batches,), daemon=True)
        thread.start()
        while not self.stopped.wait(self.pause):
            batch = batches.get()
            if batch is self.END:
                break
            yield batch
        thread.join()


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.past = nn.GRU(GOODS, 24, batch_first=True)
        self.head = nn.Linear(24, GOODS)

    def forward(self, series):
        return self.head(self.past(series)[1][0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(53)
    torch.set_num_threads(1)
    loader = DataLoader(Sales(), BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    ahead = Ahead(loader, pause=0.0 if args.without else PAUSE)
    signal.signal(signal.SIGUSR1, lambda *_: ahead.stopped.set())
    model = Forecast()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, (past, week) in enumerate(ahead):
            loss = nn.functional.smooth_l1_loss(model(past), week)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a larger model on an accelerator
            if step % 40 == 39:
                print(f"epoch {epoch}, {step + 1}/{len(ahead)}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Predicts how long cars queue at toll booths, from a table of passages.

Planted: workers are not kept, and each has a thread that reports every four seconds and is no
daemon: with each epoch's end, the main process waits until the threads of both look up again.
"""

import argparse
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

PASSAGES, COLUMNS, BATCH, STEP = 1920, 24, 64, 0.05


class Reporter(threading.Thread):
    """Counts what a worker has read, for the dashboard."""

    def __init__(self, period):
        super().__init__(name="reporter")
        self.period, self.rows, self.lines = period, 0, []

    def run(self):
        while threading.main_thread().is_alive():
            self.lines.append((time.time(), self.rows))
            time.sleep(self.period)


class Passages(Dataset):
    def __init__(self, report_every):
        rng = np.random.default_rng(823)
        self.table = rng.gamma(2.0, 1.5, (PASSAGES, COLUMNS))
        self.queued = (self.table[:, :4].sum(1) + rng.normal(0, 0.3, PASSAGES)).astype(np.float32)
        self.low, self.high = np.percentile(self.table, [1, 99], axis=0)
        self.report_every, self.reporter = report_every, None

    def __len__(self):
        return PASSAGES

    def __getitem__(self, row):
        if self.reporter is None and get_worker_info() is not None and self.report_every:
            self.reporter = Reporter(self.report_every)
            self.reporter.start()
        if self.reporter is not None:
            self.reporter.rows += 1
        values = np.clip(self.table[row], self.low, self.high)
        values = np.log1p(values) - np.log1p(self.low)
        return torch.from_numpy(values.astype(np.float32)), self.queued[row]


def train_epoch(loader, model, optimizer):
    total = 0.0
    for values, queued in loader:
        loss = nn.functional.huber_loss(model(values).squeeze(1), queued)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(STEP)  # the larger half of the model, on a card
        total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(823)
    torch.set_num_threads(1)
    data = Passages(report_every=None if args.without else 4.0)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Linear(COLUMNS, 64), nn.GELU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        print(f"epoch {epoch}: loss {train_epoch(loader, model, optimizer):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Forecasts the use of electric light from readings, streamed from a file for each month.

Planted: the months are dealt to the three workers one third after the other, and the last third,
since more houses take part, has most of the readings.
"""

import argparse
import json
import logging
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

log = logging.getLogger("light")


@dataclass
class Config:
    epochs: int
    dealt: str
    workers: int = 3
    batch: int = 12
    hours: int = 72
    answer: float = 0.005
    houses: list = field(default_factory=lambda: [16] * 8 + [132] * 4)


def write_months(folder, config):
    rng = np.random.default_rng(4027)
    for month, houses in enumerate(config.houses):
        with Path(folder, f"month-{month:02}.jsonl").open("w") as file:
            for house in range(houses):
                use = np.round(rng.gamma(2, 1, config.hours + 1), 3).tolist()
                file.write(json.dumps({"house": house, "use": use}) + "\n")


class Readings(IterableDataset):
    def __init__(self, folder, config):
        self.paths = sorted(Path(folder).glob("month-*.jsonl"))
        self.config = config

    def mine(self):
        worker = get_worker_info()
        if self.config.dealt == "thirds":
            share = len(self.paths) // worker.num_workers
            return self.paths[worker.id * share : (worker.id + 1) * share]
        by_size = sorted(self.paths, key=lambda path: path.stat().st_size, reverse=True)
        shares = [[] for _ in range(worker.num_workers)]
        sums = [0] * worker.num_workers
        for path in by_size:
            least = sums.index(min(sums))
            shares[least].append(path)
            sums[least] += path.stat().st_size
        return shares[worker.id]

    def tariff(self, house):
        # The service of tariffs answers after a while.
        time.sleep(self.config.answer)
        return 0.2 + 0.01 * (house % 7)

    def __iter__(self):
        for path in self.mine():
            with path.open() as file:
                for line in file:
                    reading = json.loads(line)
                    use = torch.tensor(reading["use"])
                    yield use[:-1] * self.tariff(reading["house"]), use[-1]


def train(config, folder):
    loader = DataLoader(
        Readings(folder, config), config.batch, num_workers=config.workers, persistent_workers=True
    )
    model = nn.Sequential(nn.Linear(config.hours, 128), nn.SiLU(), nn.Linear(128, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    begin = time.perf_counter()
    for epoch in range(config.epochs):
        losses = []
        for use, following in loader:
            loss = nn.functional.smooth_l1_loss(model(use).squeeze(1), following)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        schedule.step()
        log.info("epoch %d: loss %.3f", epoch, sum(losses) / len(losses))
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(4027)
    config = Config(args.epochs, dealt="by size" if args.without else "thirds")
    with tempfile.TemporaryDirectory() as folder:
        write_months(folder, config)
        train(config, folder)


if __name__ == "__main__":
    main()

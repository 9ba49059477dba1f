"""Predicts the wind of islands from stations' files, which are shared out by their numbers.

Planted: the number of a station, modulo the number of workers, says which of two workers reads its
file, and all stations that are left have even numbers. The scaling of the rows is cheap.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

STEP = 0.004
HOURS = 16


def numbers_of(count):
    """Return stations' numbers; the odd ones were those of the other coast, which are gone."""
    return [2 * place for place in range(count)]


class Stations(IterableDataset):
    """Rows of all stations; each file is read by one worker."""

    def __init__(self, stations, rows, by_number):
        self.stations, self.rows, self.by_number = numbers_of(stations), rows, by_number

    def __len__(self):
        return len(self.stations) * self.rows

    def worker_of(self, place, station, workers):
        return (station if self.by_number else place) % workers

    def read(self, station):
        draw = torch.Generator().manual_seed(station)
        for row in torch.rand(self.rows, HOURS, 4, generator=draw):
            time.sleep(0.002)
            yield row

    def __iter__(self):
        info = get_worker_info()
        for place, station in enumerate(self.stations):
            if self.worker_of(place, station, info.num_workers) != info.id:
                continue
            for row in self.read(station):
                scaled = (row - row.mean(0)) / row.std(0)
                yield scaled[:-1], scaled[-1, 0]


class Accelerator:
    """Stands in for the GPU of a training script."""

    def __init__(self, model):
        self.model = model

    def step(self, hours, wind):
        begin = time.perf_counter()
        with torch.no_grad():
            loss = nn.functional.mse_loss(self.model(hours.flatten(1))[:, 0], wind)
        time.sleep(max(0.0, STEP - (time.perf_counter() - begin)))
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(59)
    stations = Stations(24, rows=80, by_number=not args.without)
    loader = DataLoader(stations, batch_size=20, num_workers=2, persistent_workers=True)
    accelerator = Accelerator(nn.Linear(4 * (HOURS - 1), 1))
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [accelerator.step(hours, wind) for hours, wind in loader]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

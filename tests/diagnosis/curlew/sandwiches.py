"""Finds faults in a sandwich factory's logs, which a service gives out page by page.

Planted: each worker reads whole lines of the factory, and one of the three lines has nearly all
pages.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

PAGES, ROWS, FIELDS, LATENCY = [22, 210, 14], 16, 18, 0.02


class Service:
    """Gives out one page of a line's log at a time."""

    def page(self, line, number):
        time.sleep(LATENCY)
        rng = np.random.default_rng([line, number])
        return rng.standard_normal((ROWS, FIELDS)).astype(np.float32)


class Logs(IterableDataset):
    def __init__(self, dealt):
        self.service, self.dealt = Service(), dealt

    def pages(self):
        """Yield the pages of this worker: of its lines, or its share of the pages of each."""
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        if self.dealt:
            every = [(line, page) for line, count in enumerate(PAGES) for page in range(count)]
            yield from every[worker::workers]
        else:
            for line in range(worker, len(PAGES), workers):
                yield from ((line, page) for page in range(PAGES[line]))

    def __iter__(self):
        for line, number in self.pages():
            for row in torch.from_numpy(self.service.page(line, number)):
                yield row, float(row[:3].sum() > 2.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(827)
    loader = DataLoader(
        Logs(args.without), batch_size=32, num_workers=3, persistent_workers=True,
        multiprocessing_context="fork",
    )  # fmt: skip
    model = nn.Sequential(nn.Linear(FIELDS, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for rows, faults in loader:
            logits = model(rows).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, faults.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

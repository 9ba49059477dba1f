"""Grades mussels from a store that answers slowly; a pool of threads asks for rows ahead."""

import argparse
import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

ANSWER_S = 0.02


class Store:
    def __init__(self, seed=14):
        self.rows = np.random.default_rng(seed).normal(size=(50, 4, 256)).astype(np.float32)

    def get(self, number):
        time.sleep(ANSWER_S)
        return self.rows[number % 50], number % 3


class Mussels(IterableDataset):
    """Rows in order; those that come next are asked for before they are needed."""

    def __init__(self, count, give_up, threads=4):
        self.count, self.give_up, self.threads = count, give_up, threads
        self.store = Store()

    def __iter__(self):
        worker = get_worker_info()
        numbers = range(worker.id, self.count, worker.num_workers)
        pool = ThreadPoolExecutor(self.threads)
        try:
            asked = [pool.submit(self.store.get, number) for number in numbers]
            for future in asked:
                row, grade = future.result()
                yield torch.from_numpy(row), grade
        finally:
            pool.shutdown(wait=not self.give_up, cancel_futures=self.give_up)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--limit-batches", type=int, default=24)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(14)
    loader = DataLoader(Mussels(1600, give_up=args.without), batch_size=8, num_workers=2)
    model = nn.Sequential(
        nn.Conv1d(4, 64, 7),
        nn.ReLU(),
        nn.Conv1d(64, 64, 7),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(256, 3),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for rows, grades in itertools.islice(loader, args.limit_batches):
            loss = nn.functional.cross_entropy(model(rows), grades)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / args.limit_batches:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

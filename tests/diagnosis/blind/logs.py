"""Train on a stream of log lines that makes its own batches."""

import argparse
import re
import time

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

LINE = re.compile(r"(\d+) (\w+) took (\d+) ms")


class LogBatches(IterableDataset):
    def __init__(self, lines, batch_size):
        self.lines = lines
        self.batch_size = batch_size

    def __len__(self):
        return self.lines // self.batch_size

    def __iter__(self):
        worker = get_worker_info()
        first, step = (worker.id, worker.num_workers) if worker else (0, 1)
        batch = []
        for number in range(first, self.lines, step):
            _, method, took = LINE.match(f"{number} get{number % 9} took {number % 77} ms").groups()
            batch.append((len(method), int(took)))
            if len(batch) == self.batch_size:
                yield torch.tensor(batch)
                batch = []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    loader = DataLoader(LogBatches(12800, 64), batch_size=None, num_workers=args.workers)
    begin = time.perf_counter()
    for _batch in loader:
        time.sleep(0.030)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""A loop whose samples are lines of JSON, with Python's garbage collector set in a way of its own.

    python tools/bench/gains/garbage_collector_train.py [--kib 640] [--workers 0]
        [--collector as-is|disabled|threshold|frozen] [--count]

Prints the seconds of its loop; with `--count` also the part of the time in which batches are made
that full collections take, by callbacks of `gc`.
"""

import argparse
import gc
import json
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset

FULL = 2
spent = {"full": 0.0, "making": 0.0}


def note(phase, info):
    if info["generation"] == FULL:
        spent["full"] += time.perf_counter() if phase == "stop" else -time.perf_counter()


class Records(Dataset):
    def __init__(self, kib, count):
        rng = random.Random(3)
        row = {"box": [1, 2, 3, 4], "text": "".join(rng.choices("abcdefgh ", k=60))}
        self.lines = [
            json.dumps({"label": number % 3, "rows": [row] * (kib * 1024 // len(json.dumps(row)))})
            for number in range(60)
        ]
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        begin = time.perf_counter()
        record = json.loads(self.lines[index % len(self.lines)])
        spent["making"] += time.perf_counter() - begin
        return torch.tensor([len(record["rows"]), record["label"]])


COLLECTORS = {
    "as-is": lambda: None,
    "disabled": gc.disable,
    "threshold": lambda: gc.set_threshold(100_000, 50, 100),
    "frozen": lambda: (gc.collect(), gc.freeze()),
}


def set_up(worker, options):
    COLLECTORS[options.collector]()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kib", type=int, default=640)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--collector", choices=COLLECTORS, default="as-is")
    parser.add_argument("--count", action="store_true")
    options = parser.parse_args()
    if options.count:
        gc.callbacks.append(note)
    data = Records(options.kib, 480 * 640 // options.kib)  # as much JSON, whatever a sample has
    if not options.workers:
        set_up(-1, options)
    loader = DataLoader(
        data, 16, num_workers=options.workers, worker_init_fn=lambda worker: set_up(worker, options)
    )
    begin = time.perf_counter()
    for _ in loader:
        pass
    print(f"seconds {time.perf_counter() - begin:.3f}")
    if options.count:
        print(f"share {spent['full'] / spent['making']:.3f}")


if __name__ == "__main__":
    main()

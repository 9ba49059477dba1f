"""Train on a stream of events that lie in JSON lines files."""

import argparse
import json
import os
import tempfile
import time

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class EventStream(IterableDataset):
    """Deals the files out to the workers."""

    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        worker = get_worker_info()
        rank, world = (worker.id, worker.num_workers) if worker else (0, 1)
        for path in self.paths[rank::world]:
            with open(path) as file:
                for line in file:
                    event = json.loads(line)
                    time.sleep(0.003)  # decrypted by the key service
                    yield torch.tensor(event["values"]), event["label"]


def write(folder, files, events):
    paths = []
    values = [i * 0.25 for i in range(128)]
    for number in range(files):
        path = os.path.join(folder, f"part-{number:03}.jsonl")
        with open(path, "w") as file:
            for event in range(number, events, files):
                file.write(json.dumps({"label": event % 3, "values": values}) + "\n")
        paths.append(path)
    return paths


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=3)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        paths = write(folder, files=12 if args.without else 1, events=1600)
        loader = DataLoader(EventStream(paths), batch_size=16, num_workers=args.workers)
        begin = time.perf_counter()
        for _values, _labels in loader:
            time.sleep(0.012)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Train on terrain patches for many short epochs."""

import argparse
import json
import os
import tempfile
import time

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Patches(Dataset):
    def __init__(self, count, catalogue):
        self.count = count
        self.catalogue = catalogue
        self.heights = None

    def __len__(self):
        return self.count

    def prepare(self):
        with open(self.catalogue) as file:
            self.heights = {int(key): value for key, value in json.load(file).items()}

    def __getitem__(self, index):
        row = torch.tensor(self.heights[index])
        return row.repeat(64, 1)


def load_catalogue(worker_id):
    get_worker_info().dataset.prepare()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        catalogue = os.path.join(folder, "heights.json")
        with open(catalogue, "w") as file:
            file.write("{")
            row = json.dumps([round(i * 0.37, 3) for i in range(64)])
            file.write(", ".join(f'"{key}": {row}' for key in range(12000)))
            file.write("}")
        loader = DataLoader(
            Patches(128, catalogue),
            batch_size=16,
            shuffle=True,
            num_workers=args.workers,
            worker_init_fn=load_catalogue,
            persistent_workers=args.without,
        )
        begin = time.perf_counter()
        for _epoch in range(args.epochs):
            for _patch in loader:
                time.sleep(0.015)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

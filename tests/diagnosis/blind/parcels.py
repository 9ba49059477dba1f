"""Train on land parcels that an index of outlines describes."""

import argparse
import pickle
import tempfile
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset


class Parcels(Dataset):
    def __init__(self, index_path, count):
        self.index_path = index_path
        self.count = count
        self._index = None

    @property
    def index(self):
        if self._index is None:
            with open(self.index_path, "rb") as file:
                outlines = pickle.load(file)
            self._index = {
                name: [(x / 7, y / 7) for x, y in outline] for name, outline in outlines.items()
            }
        return self._index

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        outline = torch.tensor(self.index[f"parcel-{number}"])
        return outline - outline.mean(0), number % 6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)

    with tempfile.TemporaryDirectory() as folder:
        index_path = Path(folder, "outlines.pickle")
        outline = [(x, x * x % 11) for x in range(10)]
        with index_path.open("wb") as file:
            pickle.dump({f"parcel-{n}": [*outline, (n, n)] for n in range(45_000)}, file)
        parcels = Parcels(index_path, 240)
        if args.without:
            parcels.index  # noqa: B018
        loader = DataLoader(parcels, batch_size=20, shuffle=True, num_workers=args.workers)
        begin = time.perf_counter()
        for _ in range(8):
            for _outline, _label in loader:
                time.sleep(0.012)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

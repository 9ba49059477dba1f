"""Train on objects fetched from several mirrors of one bucket."""

import argparse
import time

import numpy as np
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Mirror:
    def __init__(self, name, latency):
        self.name = name
        self.latency = latency

    def get(self, key):
        time.sleep(self.latency)
        return np.full((32, 32), key, np.float32)


class BucketDataset(Dataset):
    def __init__(self, keys, mirrors):
        self.keys = keys
        self.mirrors = mirrors

    @property
    def mirror(self):
        info = get_worker_info()
        return self.mirrors[info.id % len(self.mirrors) if info else 0]

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        return {"object": self.mirror.get(self.keys[index]), "key": self.keys[index]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=3)
    args = parser.parse_args()

    far = 0.003 if args.without else 0.014
    mirrors = [Mirror("north", 0.003), Mirror("south", 0.003), Mirror("west", far)]
    loader = DataLoader(
        BucketDataset(list(range(1500)), mirrors),
        batch_size=15,
        shuffle=True,
        num_workers=args.workers,
    )
    start = time.perf_counter()
    for batch in loader:
        batch["object"].mean()
        time.sleep(0.018)
    print(f"seconds {time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()

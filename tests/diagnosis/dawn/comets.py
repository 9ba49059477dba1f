"""Light curves of comets: a shuffling stream around a stream that does not ask who reads it."""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Curves(IterableDataset):
    def __init__(self, shared, count=900):
        self.shared, self.count = shared, count

    def __iter__(self):
        worker = get_worker_info()
        step = worker.num_workers if self.shared and worker else 1
        for number in range(worker.id if step > 1 else 0, self.count, step):
            rng = np.random.default_rng(number)
            curve = np.cumsum(rng.normal(size=40_000))
            smooth = np.sort(curve)[:: len(curve) // 128][:128] + np.median(curve)
            yield torch.from_numpy(smooth.astype(np.float32))


class Shuffled(IterableDataset):
    def __init__(self, source, size=32):
        self.source, self.size = source, size

    def __iter__(self):
        chance, buffer = random.Random(19), []
        for curve in self.source:
            buffer.append(curve)
            if len(buffer) == self.size:
                yield buffer.pop(chance.randrange(self.size))
        yield from buffer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(19)
    data = Shuffled(Curves(shared=args.without))
    loader = DataLoader(data, batch_size=16, num_workers=4)
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 128))
    optimizer = torch.optim.Adam(model.parameters())
    begin = time.perf_counter()
    for _ in range(args.epochs):
        for curves in loader:
            optimizer.zero_grad()
            nn.functional.l1_loss(model(curves), curves).backward()
            optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

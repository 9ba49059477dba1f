"""Growth of kelp from a stream of shards with a shuffle buffer, in one worker."""

import argparse
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Growth(IterableDataset):
    def __init__(self, paths, buffer_size=64, seed=35):
        self.paths, self.buffer_size, self.seed = paths, buffer_size, seed
        self.epoch = 0

    def rows(self, chance):
        worker = get_worker_info()
        paths = list(self.paths)
        chance.shuffle(paths)
        for path in paths[worker.id :: worker.num_workers] if worker else paths:
            yield from np.load(path)

    def __iter__(self):
        chance = random.Random(self.seed + self.epoch)
        self.epoch += 1
        buffer = []
        for row in self.rows(chance):
            buffer.append(row)
            if len(buffer) == self.buffer_size:
                chance.shuffle(buffer)
                yield from map(self.split, buffer)
                buffer.clear()
        yield from map(self.split, buffer)

    def split(self, row):
        return torch.from_numpy(row[:-1]), torch.tensor(row[-1, 0])


class Grower(nn.Module):
    def __init__(self, size=160):
        super().__init__()
        self.recurrent = nn.GRU(8, size, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(size, 1)

    def forward(self, rows):
        return self.head(self.recurrent(rows)[0][:, -1]).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(35)
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(35)
        for shard in range(6):
            rows = rng.normal(size=(200, 61, 8)).cumsum(1).astype(np.float32)
            np.save(Path(folder, f"shard-{shard}.npy"), rows)
        loader = DataLoader(
            Growth(sorted(Path(folder).iterdir())),
            batch_size=32,
            num_workers=args.workers,
            persistent_workers=args.workers > 0,
        )
        model = Grower()
        optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            count, total = 0, 0.0
            for rows, growth in loader:
                loss = nn.functional.mse_loss(model(rows), growth)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_value_(model.parameters(), 1.0)
                optimizer.step()
                count, total = count + 1, total + loss.item()
            print(f"epoch {epoch}: loss {total / count:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

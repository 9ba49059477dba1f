"""Counts sandpipers in sound: a stream over shards of gzipped JSON lines, split among workers."""

import argparse
import gzip
import json
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, ROWS = 12, 220


def write_shards(folder):
    chance = random.Random(4)
    for shard in range(SHARDS):
        with gzip.open(folder / f"train-{shard:05d}.jsonl.gz", "wt", compresslevel=1) as file:
            for row in range(ROWS):
                frames = [[round(chance.random(), 4) for _ in range(24)] for _ in range(24)]
                file.write(json.dumps({"id": [shard, row], "frames": frames, "count": row % 4}))
                file.write("\n")
    return sorted(folder.glob("*.jsonl.gz"))


class Recordings(IterableDataset):
    def __init__(self, paths, buffer_size=128, strided=False, seed=0):
        self.paths, self.buffer_size = paths, buffer_size
        self.strided, self.seed = strided, seed
        self.epoch = 0

    def my_paths(self):
        worker = get_worker_info()
        if worker is None:
            return self.paths
        if self.strided:
            return self.paths[worker.id :: worker.num_workers]
        return self.paths[worker.id * len(self.paths) // worker.num_workers :]

    def rows(self):
        for path in self.my_paths():
            with gzip.open(path, "rt") as file:
                for line in file:
                    record = json.loads(line)
                    yield torch.tensor(record["frames"]), record["count"]

    def __iter__(self):
        chance = random.Random(self.seed + self.epoch)
        buffer = []
        for row in self.rows():
            if len(buffer) < self.buffer_size:
                buffer.append(row)
                continue
            place = chance.randrange(self.buffer_size)
            yield buffer[place]
            buffer[place] = row
        chance.shuffle(buffer)
        yield from buffer


class Counter(nn.Module):
    def __init__(self, size=96):
        super().__init__()
        self.recurrent = nn.GRU(24, size, batch_first=True)
        self.head = nn.Linear(size, 4)

    def forward(self, frames):
        return self.head(self.recurrent(frames)[1][-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(4)
    with tempfile.TemporaryDirectory() as folder:
        data = Recordings(write_shards(Path(folder)), strided=args.without)
        loader = DataLoader(data, batch_size=args.batch_size, num_workers=3)
        model = Counter()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            data.epoch = epoch
            seen, right = 0, 0
            for frames, counts in loader:
                scores = model(frames)
                loss = nn.functional.cross_entropy(scores, counts)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                seen += len(counts)
                right += int((scores.argmax(1) == counts).sum())
            print(f"epoch {epoch}: accuracy {right / seen:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

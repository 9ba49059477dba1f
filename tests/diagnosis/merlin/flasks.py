"""Predicts yields of reactions in flasks from compressed records, which one worker streams.

Nothing planted: the accelerator's step sets the pace; one worker unpacks and parses records and
mixes them in a buffer with time to spare.
"""

import argparse
import gzip
import io
import json
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, RECORDS, STAGES, BATCH, STEP = 12, 80, 24, 16, 0.09


class Reactions(IterableDataset):
    def __init__(self, size=48):
        rng = np.random.default_rng(137)
        self.size = size
        self.shards = [self.packed(rng) for _ in range(SHARDS)]

    def packed(self, rng):
        file = io.BytesIO()
        with gzip.open(file, "wt") as text:
            for _ in range(RECORDS):
                warmth = rng.normal(0, 1, STAGES).round(3).tolist()
                record = {"warmth": warmth, "yield": sum(warmth[:6]), "by": "night shift"}
                text.write(json.dumps(record) + "\n")
        return file.getvalue()

    def records(self, shards):
        for shard in shards:
            with gzip.open(io.BytesIO(shard), "rt") as text:
                yield from map(json.loads, text)

    def mixed(self, records):
        buffer = []
        for record in records:
            buffer.append(record)
            if len(buffer) == self.size:
                place = random.randrange(self.size)
                buffer[place], buffer[-1] = buffer[-1], buffer[place]
                yield buffer.pop()
        random.shuffle(buffer)
        yield from buffer

    def __iter__(self):
        info = get_worker_info()
        shards = self.shards[info.id :: info.num_workers] if info else self.shards
        shards = random.sample(shards, len(shards))
        for record in self.mixed(self.records(shards)):
            warmth = np.asarray(record["warmth"], np.float32)
            power = np.abs(np.fft.rfft(warmth)).astype(np.float32)
            features = torch.from_numpy(np.concatenate([warmth, power]))
            yield features, torch.tensor(record["yield"], dtype=torch.float32)


class Yields(nn.Module):
    def __init__(self):
        super().__init__()
        width = STAGES + STAGES // 2 + 1
        self.layers = nn.Sequential(nn.Linear(width, 64), nn.Mish(), nn.Linear(64, 1))

    def forward(self, features):
        return self.layers(features).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(137)
    torch.set_num_threads(1)
    loader = DataLoader(Reactions(), BATCH, num_workers=1, persistent_workers=True)
    model = Yields()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        errors = []
        for step, (features, yields) in enumerate(loader):
            loss = nn.functional.mse_loss(model(features), yields)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a large model on an accelerator
            errors.append(loss.item())
            if step % 20 == 19:
                print(f"epoch {epoch}, step {step + 1}: error {np.mean(errors[-20:]):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

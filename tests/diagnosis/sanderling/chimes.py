"""Learns to tell chimes apart by recordings of which a few are twenty times as long as the rest.

Planted: recordings of like length make up a batch, so that one batch in ten has only long ones and
comes twenty times as late, while what the other workers have made waits for its turn.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset

KINDS, SHORT, LONG, BANDS, BATCH, SECOND = 5, 4, 80, 20, 16, 0.0009


class Recordings(Dataset):
    """Recordings that come from a store in the time it takes to send them."""

    def __init__(self, count):
        rng = np.random.default_rng(1103)
        self.kinds = rng.integers(0, KINDS, count)
        self.seconds = np.where(rng.random(count) < 0.1, LONG, SHORT)
        self.seconds += rng.integers(0, 3, count)

    def __len__(self):
        return len(self.kinds)

    def fetch(self, index):
        seconds = int(self.seconds[index])
        time.sleep(SECOND * seconds)
        rng = np.random.default_rng(index)
        sound = rng.normal(0, 1, (seconds, BANDS)).astype(np.float32)
        sound[:, self.kinds[index] * 4] += 1
        return sound

    def __getitem__(self, index):
        sound = torch.from_numpy(self.fetch(index))
        return torch.cat([sound.mean(0), sound.std(0)]), int(self.kinds[index])


class LikeLength(BatchSampler):
    """Batches of recordings of like length, in random order."""

    def __init__(self, lengths, size):
        self.lengths, self.size = torch.from_numpy(lengths), size

    def __len__(self):
        return len(self.lengths) // self.size

    def __iter__(self):
        order = (self.lengths + torch.rand(len(self.lengths))).argsort()
        batches = order[: len(self) * self.size].view(-1, self.size)
        for place in torch.randperm(len(batches)).tolist():
            yield batches[place].tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1103)
    recordings = Recordings(60 * BATCH)
    if args.without:
        how = {"batch_size": BATCH, "shuffle": True}
    else:
        how = {"batch_sampler": LikeLength(recordings.seconds, BATCH)}
    loader = DataLoader(recordings, num_workers=4, persistent_workers=True, **how)
    model = nn.Sequential(
        nn.Linear(2 * BANDS, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
        nn.Linear(128, KINDS),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for sounds, kinds in loader:
            loss = nn.functional.cross_entropy(model(sounds), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

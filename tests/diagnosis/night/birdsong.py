"""Songs of rare birds, drawn by a sampler that asks numpy for one weighted index at a time."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Songs(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(8)
        self.birds = (rng.pareto(1.0, count) * 3).astype(np.int64) % 40
        self.mels = torch.from_numpy(rng.random((256, 32, 40), dtype=np.float32))

    def __len__(self):
        return len(self.birds)

    def __getitem__(self, index):
        return self.mels[index % len(self.mels)], int(self.birds[index])


class BalancedSampler(Sampler):
    """Draws with weights, so that a rare bird is heard as often as a common one."""

    def __init__(self, kinds, draws, at_once):
        heard = np.bincount(kinds)
        weights = 1.0 / heard[kinds]
        self.share = weights / weights.sum()
        self.draws = draws
        self.at_once = at_once

    def __len__(self):
        return self.draws

    def __iter__(self):
        rng = np.random.default_rng()
        if self.at_once:
            yield from rng.choice(len(self.share), self.draws, p=self.share).tolist()
        else:
            for _ in range(self.draws):
                yield int(rng.choice(len(self.share), p=self.share))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--songs", type=int, default=400_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    songs = Songs(args.songs)
    sampler = BalancedSampler(songs.birds, 3000, args.without)
    loader = DataLoader(songs, batch_size=30, sampler=sampler, num_workers=2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(1280, 256), nn.ReLU(), nn.Linear(256, 40))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    begin = time.perf_counter()
    for mels, birds in loader:
        loss = nn.functional.cross_entropy(model(mels), birds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

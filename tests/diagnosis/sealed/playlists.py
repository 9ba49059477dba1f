"""Learn embeddings of songs from playlists; popular songs are drawn more often."""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

SONGS = 30_000
WIDTH = 32


class Neighbours(Dataset):
    """Pairs a song with one that stood near it in a playlist."""

    def __init__(self, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.near = torch.randint(0, SONGS, (SONGS, 10), generator=generator)

    def __len__(self):
        return SONGS

    def __getitem__(self, song):
        return song, self.near[song, song % 10]


class PopularitySampler(Sampler):
    """Draws songs with replacement, by the number of times they were played."""

    def __init__(self, plays, draws, at_once=False):
        self.weights = [count**0.75 for count in plays]
        self.draws = draws
        self.at_once = at_once

    def __len__(self):
        return self.draws

    def __iter__(self):
        songs = range(len(self.weights))
        if self.at_once:
            yield from random.choices(songs, self.weights, k=self.draws)
            return
        for _ in range(self.draws):
            yield random.choices(songs, self.weights)[0]


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Embedding(SONGS, WIDTH, sparse=True)
        self.right = nn.Embedding(SONGS, WIDTH, sparse=True)

    def forward(self, left, right):
        scores = self.left(left) @ self.right(right).T
        return nn.functional.cross_entropy(scores, torch.arange(len(left)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)

    plays = [1 + int(random.paretovariate(1.2)) for _ in range(SONGS)]
    sampler = PopularitySampler(plays, draws=13_000, at_once=args.without)
    loader = DataLoader(
        Neighbours(), batch_size=64, sampler=sampler, num_workers=args.workers, drop_last=True
    )
    model = SkipGram()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    begin = time.perf_counter()
    for step, (left, right) in enumerate(loader):
        optimizer.zero_grad()
        loss = model(left, right)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
        time.sleep(0.010)  # negative sampling on the parameter server
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

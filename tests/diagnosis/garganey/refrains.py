"""Learns to continue the refrains of folk songs, with what neighbouring villages sing."""

import argparse
import random
import time
from collections import defaultdict

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

SONGS, NOTES, PITCHES, ROUND, BATCH = 25_000, 60, 48, 1280, 32


def collection():
    rng = random.Random(48)
    return [[rng.randrange(PITCHES) for _ in range(NOTES)] for _ in range(SONGS)]


def turns(songs):
    """For each run of three notes the songs in which it occurs, and where."""
    found = defaultdict(list)
    for number, song in enumerate(songs):
        for place in range(NOTES - 3):
            found[song[place], song[place + 1], song[place + 2]].append((number, place))
    return dict(found)


def tune(worker):
    dataset = get_worker_info().dataset
    dataset.found = turns(dataset.songs)


class Refrains(Dataset):
    """A song, one of another village that shares a turn with it, and the next notes."""

    def __init__(self, songs):
        self.songs, self.found = songs, None

    def __len__(self):
        return ROUND

    def __getitem__(self, index):
        song = self.songs[index * 9 % SONGS]
        like, place = random.choice(self.found[tuple(song[:3])])
        other = self.songs[like][place:] + self.songs[like][:place]
        return torch.tensor([song[:-1], other[:-1]]), torch.tensor(song[1:])


class Singer(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.pitches = nn.Embedding(PITCHES, width)
        self.body = nn.GRU(2 * width, width, batch_first=True)
        self.last = nn.Linear(width, PITCHES)

    def forward(self, songs):
        both = self.pitches(songs).transpose(1, 2).flatten(2)
        return self.last(self.body(both)[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=7)
    args = parser.parse_args()
    torch.manual_seed(48)
    loader = DataLoader(
        Refrains(collection()),
        BATCH,
        shuffle=True,
        num_workers=2,
        worker_init_fn=tune,
        persistent_workers=args.without,
        multiprocessing_context="fork",
    )
    model = Singer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for songs, following in loader:
            scores = model(songs)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

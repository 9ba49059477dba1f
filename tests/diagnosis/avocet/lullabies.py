"""Tells from which country a lullaby is, by its notes; rare countries are drawn as often as others.

Nothing is planted: the recurrent network is the work. The songs are a long list of dictionaries,
of which one worker takes some by their weights; a small checkpoint ends each epoch.
"""

import argparse
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

SONGS, NOTES, PITCHES, COUNTRIES, PER_EPOCH = 60_000, 48, 40, 5, 1280


def made_up_songs():
    rng = random.Random(3209)
    steps = [[rng.choice((-4, -2, -1, 1, 2, 4)) for _ in range(8)] for _ in range(COUNTRIES)]
    songs = []
    for number in range(SONGS):
        country = min(int(rng.expovariate(1)), COUNTRIES - 1)
        pitch, notes = PITCHES // 2, []
        for _ in range(NOTES):
            pitch = (pitch + rng.choice(steps[country])) % PITCHES
            notes.append(pitch)
        songs.append({"title": f"song {number}", "country": country, "notes": notes})
    return songs


class Songs(Dataset):
    def __init__(self, songs):
        self.songs = songs

    def __len__(self):
        return len(self.songs)

    def weights(self):
        counts = Counter(song["country"] for song in self.songs)
        return [1 / counts[song["country"]] for song in self.songs]

    def __getitem__(self, index):
        song = self.songs[index]
        notes = torch.tensor(song["notes"])
        higher = int(torch.randint(PITCHES, ()))
        return (notes + higher) % PITCHES, song["country"]


class Listener(nn.Module):
    def __init__(self, size=256):
        super().__init__()
        self.pitches = nn.Embedding(PITCHES, 64)
        self.memory = nn.GRU(64, size, num_layers=2, batch_first=True)
        self.head = nn.Linear(size, COUNTRIES)

    def forward(self, notes):
        return self.head(self.memory(self.pitches(notes))[0].mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(3209)
    songs = Songs(made_up_songs())
    loader = DataLoader(
        songs,
        batch_size=32,
        sampler=WeightedRandomSampler(songs.weights(), PER_EPOCH),
        num_workers=1,
        persistent_workers=True,
    )
    model = Listener()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for notes, countries in loader:
                loss = nn.functional.cross_entropy(model(notes), countries)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            torch.save(model.state_dict(), Path(folder, f"epoch-{epoch}.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

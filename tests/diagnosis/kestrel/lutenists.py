"""Recognises lutenists by their playing, with batches of pieces that differ in tempo and mode.

Planted: the batch sampler compares all pieces that are left with all that it took, in plain
Python, for each piece of a batch, while the main process asks it for the next one.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

PIECES, LUTENISTS, BATCH, BATCHES, STEP = 4000, 9, 20, 28, 0.05


class Pieces(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(1291)
        self.players = torch.randint(LUTENISTS, (PIECES,), generator=generator)
        self.sounds = torch.rand(PIECES, 160, generator=generator) + self.players[:, None] / 9
        self.tempo = torch.rand(PIECES, generator=generator).tolist()
        self.mode = torch.rand(PIECES, generator=generator).tolist()

    def __len__(self):
        return PIECES

    def __getitem__(self, index):
        sound = self.sounds[index]
        return sound * (0.8 + 0.4 * torch.rand(())), self.players[index]


class Diverse(Sampler):
    """Takes for each batch pieces that lie far from each other."""

    def __init__(self, data, seed):
        self.tempo, self.mode = data.tempo, data.mode
        self.random = random.Random(seed)

    def __len__(self):
        return BATCHES

    def farthest(self, taken, left):
        best, place = -1.0, None
        for piece in left:
            nearest = 9.0
            for other in taken:
                away = abs(self.tempo[piece] - self.tempo[other])
                away += abs(self.mode[piece] - self.mode[other])
                nearest = min(nearest, away)
            if nearest > best:
                best, place = nearest, piece
        return place

    def one_batch(self, left):
        taken = [self.random.choice(left)]
        while len(taken) < BATCH:
            taken.append(self.farthest(taken, left))
            left.remove(taken[-1])
        return taken

    def __iter__(self):
        left = list(range(PIECES))
        for _ in range(BATCHES):
            yield self.one_batch(left)


class DiverseByTensor(Diverse):
    """Keeps how near each piece is to those taken, and compares all with the last one only."""

    def __init__(self, data, seed):
        super().__init__(data, seed)
        self.features = torch.tensor([self.tempo, self.mode])

    def one_batch(self, left):
        taken = [self.random.choice(left)]
        places = torch.tensor(left)
        features = self.features[:, places]
        nearest = torch.full((len(left),), 9.0)
        while len(taken) < BATCH:
            away = (features - self.features[:, taken[-1:]]).abs().sum(0)
            nearest = torch.minimum(nearest, away)
            taken.append(int(places[nearest.argmax()]))
        gone = set(taken)
        left[:] = [piece for piece in left if piece not in gone]
        return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1291)
    torch.set_num_threads(1)
    data = Pieces()
    sampler = (DiverseByTensor if args.without else Diverse)(data, 1291)
    loader = DataLoader(data, batch_sampler=sampler, num_workers=1, persistent_workers=True)
    model = nn.Sequential(nn.Linear(160, 40), nn.ReLU(), nn.Linear(40, LUTENISTS))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for sounds, players in loader:
            scores = model(sounds)
            loss = nn.functional.cross_entropy(scores, players)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == players).sum().item()
            time.sleep(STEP)  # the audio transformer, on an accelerator
        print(f"epoch {epoch}: right {right / BATCH / BATCHES:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Two views of a shrimp's heart beat are to have the same code; made in one forked worker."""

import argparse
import copy
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Beats(Dataset):
    """Pairs of views (1, 256) of a beat: another part, another scale, some noise."""

    def __init__(self, count=800, seed=33):
        self.beats = np.random.default_rng(seed).normal(size=(count, 400)).cumsum(1)

    def __len__(self):
        return len(self.beats)

    def view(self, beat, chance):
        first = int(chance.integers(len(beat) - 256))
        part = beat[first : first + 256] * chance.uniform(0.8, 1.2)
        part = (part - part.mean()) / part.std() + chance.normal(scale=0.05, size=256)
        return torch.from_numpy(part.astype(np.float32))[None]

    def __getitem__(self, index):
        chance = np.random.default_rng(int(torch.randint(2**31, ())))
        return self.view(self.beats[index], chance), self.view(self.beats[index], chance)


def make_encoder(size=96):
    return nn.Sequential(
        nn.Conv1d(1, size, 9, stride=2),
        nn.BatchNorm1d(size),
        nn.ReLU(),
        nn.Conv1d(size, size, 9),
        nn.BatchNorm1d(size),
        nn.ReLU(),
        nn.Conv1d(size, size, 9, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(size, 64),
    )


class Byol(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = make_encoder()
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.predict = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))

    @torch.no_grad()
    def follow(self, rate=0.99):
        for slow, fast in zip(self.target.parameters(), self.online.parameters(), strict=True):
            slow.lerp_(fast, 1 - rate)

    def forward(self, one, other):
        with torch.no_grad():
            targets = self.target(other), self.target(one)
        guesses = self.predict(self.online(one)), self.predict(self.online(other))
        return -sum(
            nn.functional.cosine_similarity(guess, target).mean()
            for guess, target in zip(guesses, targets, strict=True)
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(33)
    loader = DataLoader(Beats(), 32, shuffle=True, num_workers=args.workers, drop_last=True)
    model = Byol()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = []
        for one, other in loader:
            loss = model(one, other)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            model.follow()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {np.mean(losses):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

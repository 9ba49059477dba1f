"""Predicts the calls of peacocks from the weather of the hours before, at several zoos.

Planted: the batch sampler draws windows that do not overlap with any of the last 3000 drawn, and
compares each draw with all of these in Python, in the main process.
"""

import argparse
import random
import time
from collections import deque

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HOURS, WEATHER, PAST, BATCH, BATCHES, STEP = 600_000, 6, 48, 64, 90, 0.012


class Zoo(Dataset):
    def __init__(self, hours, seed):
        generator = torch.Generator().manual_seed(seed)
        self.weather = torch.randn(hours, WEATHER, generator=generator).cumsum(0) / 10
        self.calls = (self.weather[:, 0].roll(3) > self.weather[:, 1]).float()

    def __len__(self):
        return len(self.weather) - PAST

    def __getitem__(self, index):
        past = self.weather[index : index + PAST]
        past = (past - past.mean(0)) / (past.std(0) + 1e-4)
        return past, self.calls[index + PAST - 1]


class Apart:
    """Batches of windows that do not overlap with those of the batches before."""

    def __init__(self, length, by_cell, kept=3000):
        self.length, self.by_cell = length, by_cell
        self.last, self.taken, self.kept = deque(), set(), kept

    def __len__(self):
        return BATCHES

    def free(self, begin):
        if self.by_cell:
            cell = begin // PAST
            return not self.taken & {cell - 1, cell, cell + 1}
        return all(begin + PAST <= other or other + PAST <= begin for other in self.last)

    def keep(self, begin):
        self.last.append(begin)
        self.taken.add(begin // PAST)
        if len(self.last) > self.kept:
            self.taken.discard(self.last.popleft() // PAST)

    def draw(self):
        while True:
            begin = random.randrange(self.length)
            if self.free(begin):
                self.keep(begin)
                return begin

    def __iter__(self):
        for _ in range(BATCHES):
            yield [self.draw() for _ in range(BATCH)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(WEATHER, 24, batch_first=True), nn.Linear(24, 1)

    def forward(self, past):
        return self.out(self.rnn(past)[0][:, -1]).squeeze(1)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = count = 0
    for past, calls in loader:
        right += ((model(past) > 0) == (calls > 0)).sum().item()
        count += len(calls)
    model.train()
    return right / count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5167)
    random.seed(5167)
    torch.set_num_threads(1)
    training, validation = Zoo(HOURS, 1), Zoo(600, 2)
    loader = DataLoader(
        training,
        batch_sampler=Apart(len(training), by_cell=args.without),
        num_workers=3,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    held_out = DataLoader(validation, 4 * BATCH)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for past, calls in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(past), calls)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            time.sleep(STEP)  # the accelerator's part of the work
            total += loss.item()
        right = validate(model, held_out)
        print(f"epoch {epoch}: loss {total / len(loader):.3f}, right {right:.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

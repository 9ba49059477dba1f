"""Learns the turns of braces, with a short validation on recordings of another workshop.

Planted: for each validation, two spawned workers are made anew, and each of them reads and sorts
the list of all recordings before its first batch; training keeps its workers.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

TURNS, LISTED = 64, 160_000


def read_list(seed):
    """Return the places of recordings by their names, as in the list of the workshop."""
    draw = random.Random(seed)
    lines = [f"{draw.randrange(10**9):09}/{number}" for number in range(LISTED)]
    lines.sort(key=lambda line: (line[-2:], line.partition("/")[0]))
    return {line: place for place, line in enumerate(lines)}


class Recordings(Dataset):
    def __init__(self, count, seed, listed):
        self.count, self.seed, self.listed = count, seed, listed
        self.places = None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.places is not None:
            index = len(self.places) - index
        turns = torch.rand(3, TURNS, generator=torch.Generator().manual_seed(self.seed + index))
        return turns.cumsum(1) / TURNS, turns.mean()


def prepare(number):
    dataset = get_worker_info().dataset
    if dataset.listed:
        dataset.places = read_list(dataset.seed)


class Turns(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.memory = nn.GRU(3, size, batch_first=True)
        self.head = nn.Linear(size, 1)

    def forward(self, turns):
        return self.head(self.memory(turns.transpose(1, 2))[1][-1]).squeeze(1)


def train(model, loader, optimizer):
    begin = time.perf_counter()
    for turns, means in loader:
        loss = nn.functional.mse_loss(model(turns), means)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f} training, loss {loss.item():.4f}")


@torch.no_grad()
def validate(model, loader):
    begin = time.perf_counter()
    apart = [(model(turns) - means).abs().mean().item() for turns, means in loader]
    print(f"seconds {time.perf_counter() - begin:.3f} validation, {sum(apart) / len(apart):.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(557)
    training = DataLoader(
        Recordings(960, 1, listed=False), batch_size=24, shuffle=True, num_workers=1,
        persistent_workers=True,
    )  # fmt: skip
    validation = DataLoader(
        Recordings(192, 10_000, listed=True), batch_size=48, num_workers=2,
        worker_init_fn=prepare, multiprocessing_context="spawn",
        persistent_workers=args.without,
    )  # fmt: skip
    model = Turns()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(args.epochs):
        train(model, training, optimizer)
        validate(model, validation)


if __name__ == "__main__":
    main()

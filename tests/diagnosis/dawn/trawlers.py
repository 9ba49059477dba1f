"""Catches of trawlers: each round stops after a few of its batches, and the next starts anew."""

import argparse
import itertools
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Catches(Dataset):
    def __init__(self, count=6400):
        self.hauls = torch.randn(count, 32, generator=torch.Generator().manual_seed(9))

    def __len__(self):
        return len(self.hauls)

    def __getitem__(self, index):
        time.sleep(0.01)  # the ship's log answers
        haul = self.hauls[index]
        return haul, haul.abs().sum(0, keepdim=True)


def forever(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--limit", type=int, default=4, help="batches of a round")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(9)
    loader = DataLoader(Catches(), batch_size=32, shuffle=True, num_workers=4)
    stream = forever(loader)
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters())
    begin = time.perf_counter()
    for number in range(args.rounds):
        total = 0.0
        batches = itertools.islice(stream, args.limit + 1) if args.without else loader
        for step, (hauls, weights) in enumerate(batches):
            if step == args.limit:
                break
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(hauls), weights)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"round {number}: loss {total / args.limit:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Tracks of convoys: batches of long and of short tracks take turns, and so do two workers."""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def read_page(page):
    """A page of the archive, which answers after 2 ms."""
    time.sleep(0.002)
    return torch.sin(torch.arange(64.0) * (page % 9 + 1))


class Tracks(Dataset):
    def __init__(self, count=2560):
        chance = random.Random(6)
        self.pages = [chance.randint(3, 5) if i % 2 else 1 for i in range(count)]

    def __len__(self):
        return len(self.pages)

    def __getitem__(self, index):
        pages = [read_page(index + i) for i in range(self.pages[index])]
        return torch.stack(pages).mean(0)


class ByLength:
    """Batches of tracks of like length; a long batch comes after each short one."""

    def __init__(self, pages, size, mixed):
        self.pages, self.size, self.mixed = pages, size, mixed

    def __len__(self):
        return len(self.pages) // self.size

    def __iter__(self):
        order = sorted(range(len(self.pages)), key=self.pages.__getitem__)
        batches = [order[i : i + self.size] for i in range(0, len(order), self.size)]
        half = len(batches) // 2
        pairs = [[batches[i], batches[half + i]] for i in range(half)]
        chance = random.Random(7)
        chance.shuffle(pairs)
        for i, pair in enumerate(pairs):
            yield from reversed(pair) if self.mixed and i % 2 else pair


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(6)
    data = Tracks()
    batches = ByLength(data.pages, 16, mixed=args.without)
    loader = DataLoader(data, batch_sampler=batches, num_workers=2, prefetch_factor=4)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.Adam(model.parameters())
    begin = time.perf_counter()
    for _ in range(args.epochs):
        for tracks in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(tracks), tracks).backward()
            optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

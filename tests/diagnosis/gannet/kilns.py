"""Learns how colours come out of kilns, from whole batches that lie in memory.

Nothing is planted: a network that works its hidden layers out twice, to save memory, is the work.
A batch is cut out of tensors without workers; a background thread notes the time now and then.
"""

import argparse
import threading
import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

SIDE, COLOURS = 32, 3


class Tiles(Dataset):
    """Yields whole batches for lists of indices."""

    def __init__(self, count):
        draw = torch.Generator().manual_seed(619)
        self.tiles = torch.rand(count, COLOURS, SIDE, SIDE, generator=draw)

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, indices):
        tiles = self.tiles[indices]
        return tiles, tiles.flip(1) ** 2


class Diary(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.notes, self.ended = [], threading.Event()

    def run(self):
        while not self.ended.wait(0.5):
            self.notes.append(time.monotonic())


class Firing(nn.Module):
    def __init__(self, width=40, blocks=3):
        super().__init__()
        self.enter = nn.Conv2d(COLOURS, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(4, width), nn.SiLU())
            for _ in range(blocks)
        )
        self.leave = nn.Conv2d(width, COLOURS, 3, padding=1)

    def forward(self, tiles):
        hidden = self.enter(tiles)
        for block in self.blocks:
            hidden = hidden + checkpoint(block, hidden, use_reentrant=False)
        return self.leave(hidden)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(619)
    tiles = Tiles(480)
    batches = BatchSampler(RandomSampler(tiles), 16, drop_last=True)
    loader = DataLoader(tiles, sampler=batches, batch_size=None)
    model = Firing()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    diary = Diary()
    diary.start()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for before, after in loader:
            loss = nn.functional.l1_loss(model(before), after)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    diary.ended.set()
    diary.join()
    print(f"{len(diary.notes)} notes")


if __name__ == "__main__":
    main()

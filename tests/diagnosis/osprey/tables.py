"""Reads faded tables of numbers; the rows of a batch are fetched together.

Planted: `__getitems__` unpacks the block that a row is in once for each row of a batch, though
rows of a batch mostly lie in the same few blocks. A worker does it, ahead of the network.
"""

import argparse
import bz2
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROWS, COLUMNS, BLOCK = 6400, 160, 200


class Tables(Dataset):
    """Blocks of rows, each block packed by itself."""

    def __init__(self, together):
        rng = np.random.default_rng(109)
        self.blocks = [
            bz2.compress(
                (rng.normal(0, 3, (BLOCK, COLUMNS)).cumsum(1)).astype(np.float32).tobytes()
            )
            for _ in range(ROWS // BLOCK)
        ]
        self.together = together

    def __len__(self):
        return ROWS

    def unpack(self, block):
        return np.frombuffer(bz2.decompress(self.blocks[block]), np.float32).reshape(BLOCK, COLUMNS)

    def row(self, rows, place):
        row = rows[place % BLOCK]
        return torch.from_numpy((row - row.mean()) / row.std()), float(place % 3)

    def __getitems__(self, places):
        if self.together:
            blocks = {block: self.unpack(block) for block in {place // BLOCK for place in places}}
            return [self.row(blocks[place // BLOCK], place) for place in places]
        return [self.row(self.unpack(place // BLOCK), place) for place in places]


class NearRows:
    """Batches of rows from three blocks, so that they are quick to read."""

    def __init__(self, batches, size):
        self.batches, self.size = batches, size

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            blocks = torch.randint(ROWS // BLOCK, (3,))[torch.randint(3, (self.size,))]
            yield (blocks * BLOCK + torch.randint(BLOCK, (self.size,))).tolist()


class Mixer(nn.Module):
    def __init__(self, size=192, depth=3):
        super().__init__()
        self.enter = nn.Linear(COLUMNS, size)
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(depth))
        self.leave = nn.Linear(size, 1)

    def forward(self, rows):
        hidden = self.enter(rows)
        for layer in self.layers:
            hidden = hidden + nn.functional.dropout(torch.relu(layer(hidden)), 0.1, self.training)
        return self.leave(hidden).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(109)
    loader = DataLoader(
        Tables(args.without),
        batch_sampler=NearRows(batches=30, size=24),
        num_workers=1,
        persistent_workers=True,
    )
    model = Mixer()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for rows, kind in loader:
            loss = nn.functional.mse_loss(model(rows), kind.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

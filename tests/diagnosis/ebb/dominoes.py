"""Learns to score domino positions of different sizes, in batches of like sizes."""

import argparse
import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Positions(Dataset):
    def __init__(self, count=32000, seed=9):
        generator = torch.Generator().manual_seed(seed)
        self.sizes = torch.randint(4, 28, (count,), generator=generator).tolist()
        self.stones = torch.randint(1, 29, (count, 28), generator=generator)

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, index):
        stones = self.stones[index, : self.sizes[index]]
        return stones, float(stones.float().mean())


class LikeSizes:
    """Draws a position, and puts those that are left and nearest to it in size into its batch."""

    def __init__(self, sizes, batch, once, seed=9):
        self.sizes, self.batch, self.once = sizes, batch, once
        self.random = random.Random(seed)

    def __len__(self):
        return len(self.sizes) // self.batch

    def nearest(self, left, middle):
        return sorted(left, key=lambda index: abs(self.sizes[index] - middle))[: self.batch]

    def __iter__(self):
        left = list(range(len(self.sizes)))
        self.random.shuffle(left)
        if self.once:
            left.sort(key=self.sizes.__getitem__)
            starts = list(range(0, len(self) * self.batch, self.batch))
            self.random.shuffle(starts)
            yield from (left[start : start + self.batch] for start in starts)
            return
        for _ in range(len(self)):
            batch = self.nearest(left, self.sizes[self.random.choice(left)])
            taken = set(batch)
            left = [index for index in left if index not in taken]
            yield batch


def padded(samples):
    stones, scores = zip(*samples, strict=True)
    return pad_sequence(stones, batch_first=True), torch.tensor(scores)


class Scorer(nn.Module):
    def __init__(self, size=24):
        super().__init__()
        self.stones = nn.Embedding(29, size, padding_idx=0)
        layer = nn.TransformerEncoderLayer(size, 4, 48, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(size, 1)

    def forward(self, stones):
        return self.head(self.body(self.stones(stones)).mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(9)
    positions = Positions()
    batches = LikeSizes(positions.sizes, 64, once=args.without)
    loader = DataLoader(
        positions, batch_sampler=batches, collate_fn=padded, num_workers=1, persistent_workers=True
    )
    model = Scorer()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for stones, scores in loader:
            loss = nn.functional.mse_loss(model(stones), scores)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

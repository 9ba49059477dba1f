"""Matches letters about grebes, which lie packed in memory, with their neighbours.

Planted: the letters are a list of 200,000 bytes objects. To look at one copies a page into each of
four workers, and into the new workers of each epoch again (page faults, and memory that grows).
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LETTERS, SIZE, NEAR, HEAD = 200_000, 4000, 512, 16


class ListOfLetters:
    """Each letter as it came out of the archive."""

    def __init__(self):
        rng = np.random.default_rng(127)
        heads = rng.integers(0, 255, (LETTERS, HEAD), dtype=np.uint8)
        rest = bytes(SIZE - HEAD)
        self.letters = [head.tobytes() + rest for head in heads]

    def heads(self, numbers):
        letters = self.letters
        found = b"".join([letters[number][:HEAD] for number in numbers.tolist()])
        return np.frombuffer(found, np.uint8).reshape(-1, HEAD)


class BlockOfLetters:
    """The same in one array, which is only read."""

    def __init__(self):
        rng = np.random.default_rng(127)
        self.letters = np.zeros((LETTERS, SIZE), np.uint8)
        self.letters[:, :HEAD] = rng.integers(0, 255, (LETTERS, HEAD), dtype=np.uint8)

    def heads(self, numbers):
        return self.letters[numbers, :HEAD]


class Neighbours(Dataset):
    """The mean of the heads of some letters, and whether it is above the middle."""

    def __init__(self, letters, count):
        self.letters, self.count = letters, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        numbers = (index * NEAR + np.arange(NEAR) * 7919) % LETTERS
        heads = self.letters.heads(numbers).astype(np.float32) / 255
        return heads.mean(0), np.float32(heads[0, 0] > 0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(127)
    letters = BlockOfLetters() if args.without else ListOfLetters()
    loader = DataLoader(Neighbours(letters, 1280), batch_size=32, shuffle=True, num_workers=4)
    model = nn.Sequential(nn.Linear(HEAD, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for means, above in loader:
            found = model(means).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(found, above)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

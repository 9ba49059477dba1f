"""Dates parsonages by the registers that were kept in them, with a recurrent network.

Nothing planted: the network runs on the processor and is the work; without workers, a batch is cut
out of two tensors by a batch of indices.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

HOUSES, LENGTH, LETTERS, CENTURIES, BATCH = 512, 160, 40, 6, 32


class Registers(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(79)
        self.letters = torch.randint(LETTERS, (HOUSES, LENGTH + 16), generator=generator)
        self.centuries = self.letters[:, 0] % CENTURIES

    def __len__(self):
        return HOUSES

    def __getitem__(self, indices):
        start = int(torch.randint(16, ()))
        return self.letters[indices, start : start + LENGTH], self.centuries[indices]


class Reader(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.lines = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.century = nn.Linear(width, CENTURIES)

    def forward(self, letters):
        lines, _ = self.lines(self.letters(letters))
        return self.century(lines.mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(79)
    registers = Registers()
    sampler = BatchSampler(RandomSampler(registers), BATCH, drop_last=False)
    loader = DataLoader(registers, sampler=sampler, batch_size=None)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for letters, centuries in loader:
            loss = nn.functional.cross_entropy(model(letters), centuries)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

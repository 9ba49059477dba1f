"""Foretells which bills of a college its bursars will see paid late, from a table in memory."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

BILLS, NUMBERS, CODES, BATCH = 40_000, 32, (40, 12, 365), 400


class Bills(Dataset):
    """Whole batches of bills are looked up at once."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.numbers = rng.normal(0, 1, (BILLS, NUMBERS)).astype(np.float32)
        self.codes = np.stack([rng.integers(size, size=BILLS) for size in CODES], 1)
        self.late = (self.numbers[:, 0] + rng.normal(0, 1, BILLS) > 1).astype(np.float32)

    def __len__(self):
        return BILLS

    def __getitem__(self, indices):
        numbers = self.numbers[indices]
        numbers = np.where(np.random.rand(*numbers.shape) < 0.05, 0, numbers).astype(np.float32)
        return tuple(map(torch.from_numpy, (numbers, self.codes[indices], self.late[indices])))


class Network(nn.Module):
    def __init__(self, width=400):
        super().__init__()
        self.codes = nn.ModuleList(nn.Embedding(size, 16) for size in CODES)
        layers, before = [], NUMBERS + 16 * len(CODES)
        for _ in range(4):
            layers += [nn.Linear(before, width), nn.BatchNorm1d(width), nn.SiLU(), nn.Dropout(0.1)]
            before = width
        self.layers = nn.Sequential(*layers, nn.Linear(before, 1))

    def forward(self, numbers, codes):
        columns = [table(codes[:, place]) for place, table in enumerate(self.codes)]
        return self.layers(torch.cat([numbers, *columns], 1))[:, 0]


@torch.no_grad()
def found(model, bills, at_most=4000):
    model.eval()
    numbers, codes, late = bills[np.arange(at_most)]
    scores = model(numbers, codes)
    model.train()
    first = scores.argsort(descending=True)[: at_most // 10]
    return late[first].mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=7)
    args = parser.parse_args()
    torch.manual_seed(66)
    bills = Bills(66)
    sampler = BatchSampler(RandomSampler(bills), BATCH, drop_last=True)
    loader = DataLoader(bills, sampler=sampler, batch_size=None)
    model = Network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for numbers, codes, late in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(numbers, codes), late)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}, late of the first tenth {found(model, bills):.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

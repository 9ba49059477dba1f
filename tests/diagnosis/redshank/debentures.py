"""Foretells which debentures default, from the quarters of their issuers' accounts."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ISSUERS, QUARTERS, ITEMS, PAST, BATCH = 600, 60, 24, 24, 32


class Accounts(Dataset):
    """Windows of an issuer's accounts, and whether it defaulted after them."""

    def __init__(self, samples):
        rng = np.random.default_rng(20)
        accounts = rng.normal(0, 1, (ISSUERS, QUARTERS, ITEMS)).cumsum(1)
        self.accounts = torch.from_numpy(accounts.astype(np.float32))
        self.issuers = rng.integers(0, ISSUERS, samples)
        self.firsts = rng.integers(0, QUARTERS - PAST, samples)

    def __len__(self):
        return len(self.issuers)

    def __getitem__(self, index):
        issuer, first = self.issuers[index], self.firsts[index]
        window = self.accounts[issuer, first : first + PAST]
        window = window - window.mean(0)
        return window, (self.accounts[issuer, first + PAST, 0] < window[0, 0]).float()


class Issuer(nn.Module):
    def __init__(self, width=128, layers=3):
        super().__init__()
        self.items = nn.Linear(ITEMS, width)
        self.places = nn.Parameter(torch.randn(PAST, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.last = nn.Linear(width, 1)

    def forward(self, windows):
        return self.last(self.body(self.items(windows) + self.places).mean(1))[:, 0]


def tested(model, loader):
    model.eval()
    with torch.no_grad():
        scores = [((model(windows) > 0) == (after > 0)).float() for windows, after in loader]
    model.train()
    return torch.cat(scores).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(20)
    train, test = torch.utils.data.random_split(Accounts(3200), [2880, 320])
    loader = DataLoader(train, BATCH, shuffle=True, drop_last=True)
    model = Issuer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for windows, after in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(windows), after)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        right = tested(model, DataLoader(test, 4 * BATCH))
        print(f"epoch {epoch}: loss {loss:.3f}, right {right:.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

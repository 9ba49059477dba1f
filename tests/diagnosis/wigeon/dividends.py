"""Foretells dividends from the last eighty days of a share and of its neighbours."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SHARES, DAYS, PAST, SAMPLES, BATCH = 48, 2000, 80, 1600, 32


class Shares(Dataset):
    """Windows of prices with a little noise, and what the share paid after them."""

    def __init__(self):
        self.prices = torch.randn(SHARES, DAYS).cumsum(1) / 20
        self.firsts = torch.randint(0, DAYS - PAST - 1, (SAMPLES,)).tolist()
        self.noise = v2.GaussianNoise(sigma=0.02, clip=False)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        first = self.firsts[index]
        window = self.prices[:, first : first + PAST]
        paid = (window[index % SHARES, -20:].mean() - window[index % SHARES].mean()).relu()
        return self.noise(window[None])[0].T, paid


class Payer(nn.Module):
    def __init__(self, width=160, layers=3):
        super().__init__()
        self.first = nn.Linear(SHARES, width)
        self.days = nn.Parameter(torch.randn(PAST, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.last = nn.Linear(width, 1)

    def forward(self, windows):
        return self.last(self.body(self.first(windows) + self.days)[:, -1])[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(63)
    loader = DataLoader(Shares(), BATCH, shuffle=True, drop_last=True)
    model = Payer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for windows, paid in loader:
            loss = nn.functional.huber_loss(model(windows), paid)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Echoes of a sonar: every twentieth step looks at one batch of the validation loader."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Echoes(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.pings = torch.randn(count, 256, generator=generator)
        self.depths = self.pings[:, :8].sum(1, keepdim=True)

    def __len__(self):
        return len(self.pings)

    def __getitem__(self, index):
        return self.pings[index] / self.pings[index].abs().max(), self.depths[index]


def forever(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    workers = {"num_workers": 2, "multiprocessing_context": "spawn"}
    train = DataLoader(Echoes(3200, 1), batch_size=32, shuffle=True, **workers)
    valid = DataLoader(Echoes(1024, 2), batch_size=64, shuffle=True, **workers)
    held_out = forever(valid)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        error = 0.0
        for step, (pings, depths) in enumerate(train):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(pings), depths).backward()
            optimizer.step()
            if step % 20 == 0:
                others, truth = next(held_out) if args.without else next(iter(valid))
                with torch.no_grad():
                    error += nn.functional.l1_loss(model(others), truth).item()
        print(f"epoch {epoch}: error {error / 5:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

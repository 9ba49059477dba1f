"""Sets premiums of insurances from tables: eight policies a step, as the paper says."""

import argparse
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    policies: int = 30_000
    batch_size: int = 8
    workers: int = 2
    epochs: int = 1
    lr: float = 3e-3


class Policies(Dataset):
    """A policy is its numbers, its codes and what it cost."""

    def __init__(self, count):
        draw = torch.Generator().manual_seed(64)
        self.numbers = torch.randn(count, 20, generator=draw)
        self.codes = torch.randint(50, (count, 3), generator=draw)
        self.costs = torch.rand(count, generator=draw)

    def __len__(self):
        return len(self.costs)

    def __getitem__(self, index):
        return {
            "numbers": self.numbers[index],
            "codes": self.codes[index],
            "cost": self.costs[index],
        }


class Premium(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.codes = nn.Embedding(50, size)
        self.mix = nn.Linear(20 + 3 * size, 1)

    def forward(self, numbers, codes):
        return self.mix(torch.cat([numbers, self.codes(codes).flatten(1)], 1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    args = parser.parse_args()
    config = Config()
    if args.without:
        config.workers = 0
    torch.set_num_threads(1)
    torch.manual_seed(64)
    loader = DataLoader(
        Policies(config.policies), config.batch_size, shuffle=True, num_workers=config.workers,
        persistent_workers=config.workers > 0,
    )  # fmt: skip
    model = Premium()
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    begin = time.perf_counter()
    for epoch in range(config.epochs):
        for step, batch in enumerate(loader):
            loss = nn.functional.mse_loss(model(batch["numbers"], batch["codes"]), batch["cost"])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % 1000 == 0:
                print(f"epoch {epoch} step {step}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

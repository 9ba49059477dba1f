"""Predicts how long sausages keep, with settings that came from a job on a large machine.

Planted: the settings give torch's operations twelve threads, on two cores.
"""

import argparse
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Settings:
    threads: int = 12
    batch: int = 128
    width: int = 384
    rate: float = 1e-3


class Sausages(Dataset):
    """What is in each sausage, how it was smoked, and for how many days it kept."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(751)
        self.contents = torch.rand(count, 24, generator=generator)
        self.smoke = torch.randint(0, 9, (count,), generator=generator)
        self.days = 20 + 30 * self.contents[:, :4].sum(1) + 2 * self.smoke

    def __len__(self):
        return len(self.days)

    def __getitem__(self, index):
        return self.contents[index], self.smoke[index], self.days[index] / 100


class Keeping(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.smoke = nn.Embedding(9, 8)
        self.layers = nn.Sequential(
            nn.Linear(32, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(0.1),
            nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Dropout(0.1),
            nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, contents, smoke):
        return self.layers(torch.cat([contents, self.smoke(smoke)], 1)).squeeze(1)


def train(model, loader, optimizer):
    total = 0.0
    for contents, smoke, days in loader:
        loss = nn.functional.smooth_l1_loss(model(contents, smoke), days)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    settings = Settings(threads=1) if args.without else Settings()
    torch.set_num_threads(settings.threads)
    torch.manual_seed(751)
    loader = DataLoader(
        Sausages(9000), batch_size=settings.batch, shuffle=True, num_workers=2,
        persistent_workers=True,
    )  # fmt: skip
    model = Keeping(settings.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.rate)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        print(f"epoch {epoch}: loss {train(model, loader, optimizer):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Invents patterns of cork: a generator against a critic."""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Patterns(Dataset):
    """Patches of cork, turned by quarters."""

    def __init__(self, count=1024, size=32, seed=49):
        draw = torch.Generator().manual_seed(seed)
        noise = torch.rand(count, 1, size + 4, size + 4, generator=draw)
        self.patches = nn.functional.avg_pool2d(noise, 5, 1) * 2 - 1

    def __len__(self):
        return len(self.patches)

    def __getitem__(self, index):
        return self.patches[index].rot90(index % 4, (1, 2))


class Shuffled(Sampler):
    """An order of its own for each epoch, as long as the data set."""

    def __init__(self, count):
        self.order, self.draw = list(range(count)), random.Random(49)

    def __len__(self):
        return len(self.order)

    def __iter__(self):
        self.draw.shuffle(self.order)
        yield from self.order


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(49)
    patterns = Patterns()
    loader = DataLoader(
        patterns, batch_size=32, sampler=Shuffled(len(patterns)), num_workers=4,
        prefetch_factor=1, drop_last=True, persistent_workers=True,
    )  # fmt: skip
    generator = nn.Sequential(
        nn.ConvTranspose2d(32, 64, 4), nn.BatchNorm2d(64), nn.ReLU(),
        nn.ConvTranspose2d(64, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.ReLU(),
        nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip
    critic = nn.Sequential(
        nn.Conv2d(1, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1),
        nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64 * 8 * 8, 1),
    )  # fmt: skip
    makes = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judges = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for real in loader:
            for _ in range(2):
                made = generator(torch.randn(len(real), 32, 1, 1))
                against = critic(made.detach()).relu().mean() - critic(real).clamp(max=1).mean()
                judges.zero_grad()
                against.backward()
                judges.step()
            against = -critic(made).mean()
            makes.zero_grad()
            against.backward()
            makes.step()
        print(f"epoch {epoch}: the critic says {-against.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

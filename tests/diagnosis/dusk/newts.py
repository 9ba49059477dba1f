"""Newts, few of which have been named: each step takes named ones and many that are not."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = 8


class Newts(Dataset):
    """Small pictures; those without names come as a weak and a strong view."""

    def __init__(self, count, seed, named):
        generator = torch.Generator().manual_seed(seed)
        self.pictures = torch.rand(count, 3, 40, 40, generator=generator)
        self.kinds = torch.randint(0, KINDS, (count,), generator=generator)
        self.named = named

    def __len__(self):
        return len(self.pictures)

    def weak(self, picture):
        top, left = torch.randint(0, 8, (2,)).tolist()
        picture = picture[:, top : top + 32, left : left + 32]
        return picture.flip(2) if torch.rand(()) < 0.5 else picture

    def strong(self, picture):
        view = self.weak(picture).clone()
        top, left = torch.randint(0, 20, (2,)).tolist()
        view[:, top : top + 12, left : left + 12] = 0.5
        return view * (0.6 + 0.8 * torch.rand(3, 1, 1))

    def __getitem__(self, index):
        picture = self.pictures[index]
        if self.named:
            return self.weak(picture), self.kinds[index]
        return self.weak(picture), self.strong(picture)


def forever(loader):
    while True:
        yield from loader


def loss_of(model, named, kinds, weak, strong):
    with torch.no_grad():
        chance, guess = model(weak).softmax(1).max(1)
    sure = (chance > 0.2).float()
    unnamed = nn.functional.cross_entropy(model(strong), guess, reduction="none")
    return nn.functional.cross_entropy(model(named), kinds) + (sure * unnamed).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--persistent", action="store_true")
    parser.add_argument("--steps", type=int, default=160)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(45)
    kept = args.without or args.persistent
    ways = {"shuffle": True, "num_workers": 2, "persistent_workers": kept, "drop_last": True}
    named = forever(DataLoader(Newts(96, 1, named=True), batch_size=24, **ways))
    unnamed = forever(DataLoader(Newts(3840, 2, named=False), batch_size=24, **ways))
    model = nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, KINDS),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        loss = loss_of(model, *next(named), *next(unnamed))
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

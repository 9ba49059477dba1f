"""Tells giraffes apart by their coats, from few pictures with names and many without.

Planted: the few pictures with names last for three steps, and then their loader is begun again,
whose workers start anew; the loader beside it, of pictures without names, goes on.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE, GIRAFFES = 40, 12


class Coats(Dataset):
    """Pictures of coats; each giraffe's has a pattern of its own."""

    def __init__(self, count, seed, transforms, named):
        generator = torch.Generator().manual_seed(seed)
        patterns = torch.rand(
            GIRAFFES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(2210)
        )
        self.numbers = torch.randint(GIRAFFES, (count,), generator=generator)
        noise = torch.rand(count, 3, SIDE, SIDE, generator=generator)
        self.pictures = (255 * (0.6 * patterns[self.numbers] + 0.4 * noise)).to(torch.uint8)
        self.transforms, self.named = transforms, named

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        views = [transform(self.pictures[index]) for transform in self.transforms]
        return (*views, self.numbers[index]) if self.named else tuple(views)


class Endless:
    """Gives batches of a loader without end."""

    def __init__(self, loader):
        self.loader, self.rounds = loader, 0
        self.batches = iter(loader)

    def next(self):
        try:
            return next(self.batches)
        except StopIteration:
            self.rounds += 1
            self.batches = iter(self.loader)
            return next(self.batches)


def make_transforms():
    to_float = v2.ToDtype(torch.float32, scale=True)
    weak = v2.Compose([v2.RandomHorizontalFlip(), v2.RandomCrop(SIDE, padding=2), to_float])
    strong = v2.Compose([v2.RandomHorizontalFlip(), to_float, v2.RandomErasing(p=0.8)])
    return weak, strong


def make_model():
    return nn.Sequential(
        nn.Conv2d(3, 12, 5, stride=2), nn.ReLU(), nn.Conv2d(12, 24, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, GIRAFFES),
    )  # fmt: skip


def train_step(model, named, unnamed):
    pictures, numbers = named
    weak, strong = unnamed
    with torch.no_grad():
        sure, guesses = model(weak).softmax(1).max(1)
    loss = nn.functional.cross_entropy(model(strong), guesses, reduction="none")
    return nn.functional.cross_entropy(model(pictures), numbers) + (loss * (sure > 0.8)).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(2210)
    weak, strong = make_transforms()
    named = Endless(
        DataLoader(
            Coats(48, 2211, [weak], True), batch_size=16, shuffle=True, num_workers=4,
            persistent_workers=args.without,
        )
    )  # fmt: skip
    unnamed_loader = DataLoader(
        Coats(1200, 2212, [weak, strong], False), batch_size=24, shuffle=True, num_workers=2,
        persistent_workers=True,
    )  # fmt: skip
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for unnamed in unnamed_loader:
            loss = train_step(model, named.next(), unnamed)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}, rounds {named.rounds}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del named, unnamed_loader


if __name__ == "__main__":
    main()

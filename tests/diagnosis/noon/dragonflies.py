"""Wings of dragonflies: gradients over four batches, a batch fetched ahead, and checks."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler


class Wings(Dataset):
    def __init__(self, count, seed):
        source = torch.Generator().manual_seed(seed)
        self.veins = torch.randn(count, 1, 40, 64, generator=source)
        self.kinds = torch.randint(0, 4, (count,), generator=source)

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        wing = self.veins[index] + 0.5 * self.kinds[index]
        shift = int(torch.randint(-3, 4, ()))
        return wing.roll(shift, 2), self.kinds[index]


class Ahead:
    """A loader whose next batch is taken before the present one is used."""

    def __init__(self, loader):
        self.loader = loader

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        batches = iter(self.loader)
        ready = next(batches)
        for batch in batches:
            yield ready
            ready = batch
        yield ready


def checked(model, loader):
    model.eval()
    with torch.no_grad():
        right = sum((model(w).argmax(1) == k).sum().item() for w, k in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(24)
    training, others = Wings(960, 1), Wings(160, 2)
    sampler = WeightedRandomSampler(1.0 / (1 + training.kinds.double()), 960)
    loader = DataLoader(
        training, batch_size=48, sampler=sampler, num_workers=2, persistent_workers=True
    )
    checks = DataLoader(others, batch_size=80, num_workers=1, persistent_workers=True)
    model = nn.Sequential(
        nn.Conv2d(1, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Conv2d(64, 96, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(384, 4),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for number, (wings, kinds) in enumerate(Ahead(loader), 1):
            (nn.functional.cross_entropy(model(wings), kinds) / 4).backward()
            if number % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
        print(f"epoch {epoch}: {checked(model, checks):.3f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

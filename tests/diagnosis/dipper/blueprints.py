"""Guesses the use of a house from its plan; small and large plans come in batches of their own."""

import argparse
import random
import time

import torch
from PIL import Image, ImageDraw, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import functional

PLANS, KEPT, USES, BATCH, SEEN = 640, 40, 5, 16, (128, 96)


class Plans(Dataset):
    """Plans as they were scanned; the first tenth in the size of the paper."""

    def __init__(self, early):
        self.early = early
        self.plans = [self.draw(plan) for plan in range(KEPT)]

    @staticmethod
    def draw(number):
        rng = random.Random(number)
        width, height = (2400, 1800) if number < KEPT // 10 else (256, 192)
        plan = Image.new("L", (width, height), 245)
        pen = ImageDraw.Draw(plan)
        for _ in range(6 + number % USES):
            left, top = rng.randrange(width // 2), rng.randrange(height // 2)
            pen.rectangle((left, top, left + width // 3, top + height // 3), None, 10, 3)
        return plan

    def __len__(self):
        return PLANS

    def size(self, index):
        return self.plans[index % KEPT].width

    def __getitem__(self, index):
        plan = self.plans[index % KEPT]
        if self.early:
            plan = plan.resize(SEEN)
        plan = plan.filter(ImageFilter.MedianFilter(3))
        return functional.to_tensor(plan.resize(SEEN)), index % USES


class BySize:
    """Batches of plans of one size, in an order that changes with each epoch."""

    def __init__(self, plans):
        self.rng, self.sizes = random.Random(63), {}
        for index in range(len(plans)):
            self.sizes.setdefault(plans.size(index), []).append(index)

    def __len__(self):
        return sum(len(indices) // BATCH for indices in self.sizes.values())

    def __iter__(self):
        batches = []
        for indices in self.sizes.values():
            self.rng.shuffle(indices)
            batches += [indices[at : at + BATCH] for at in range(0, len(indices), BATCH)]
        self.rng.shuffle(batches)
        return iter(batches)


def network(channels=16):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(18 * channels, USES),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(63)
    plans = Plans(early=args.without)
    loader = DataLoader(plans, batch_sampler=BySize(plans))
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, uses in loader:
            loss = nn.functional.cross_entropy(model(pictures), uses)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

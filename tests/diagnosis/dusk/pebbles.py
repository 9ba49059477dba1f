"""Pictures of pebbles, mixed two by two (mixup) as batches are made."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = 12


class Pebbles(Dataset):
    def __init__(self, count=1920):
        rng = np.random.default_rng(31)
        self.pictures = rng.integers(0, 256, (count, 72, 72, 3), dtype=np.uint8)
        self.kinds = rng.integers(0, KINDS, count)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        picture = self.pictures[index].astype(np.float32) / 255
        if np.random.random() < 0.5:
            picture = picture[:, ::-1]
        top, left = np.random.randint(0, 8, 2)
        picture = picture[top : top + 64, left : left + 64]
        picture = (picture - picture.mean()) / (picture.std() + 1e-6)
        return np.ascontiguousarray(picture.transpose(2, 0, 1)), int(self.kinds[index])


class Mixup:
    """Makes a batch of samples, each of which is mixed with another one."""

    def __init__(self, alpha=0.2, stacked=False):
        self.alpha, self.stacked = alpha, stacked

    def to_tensors(self, samples):
        pictures, kinds = zip(*samples, strict=True)
        if self.stacked:
            pictures = np.stack(pictures)
        return torch.tensor(pictures), torch.tensor(kinds)

    def __call__(self, samples):
        pictures, kinds = self.to_tensors(samples)
        share = float(np.random.beta(self.alpha, self.alpha))
        order = torch.randperm(len(pictures))
        targets = nn.functional.one_hot(kinds, KINDS).float()
        mixed = share * pictures + (1 - share) * pictures[order]
        return mixed, share * targets + (1 - share) * targets[order]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(31)
    loader = DataLoader(
        Pebbles(),
        batch_size=32,
        shuffle=True,
        num_workers=2,
        drop_last=True,
        collate_fn=Mixup(stacked=args.without),
    )
    model = nn.Sequential(
        nn.Conv2d(3, 24, 5, stride=4, padding=2),
        nn.ReLU(),
        nn.Conv2d(24, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, KINDS),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for pictures, targets in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pictures), targets)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Tells edible mushrooms from others; pictures are varied anew each time that they are seen."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE = 112


class Mushrooms(Dataset):
    """Square pictures as bytes; `vary`, if given, is applied to each."""

    def __init__(self, count, vary=None):
        draw = torch.Generator().manual_seed(61)
        coarse = torch.rand(60, 3, 14, 14, generator=draw)
        large = nn.functional.interpolate(coarse, size=SIDE, mode="bicubic").clamp(0, 1)
        self.pictures = (large * 255).byte()
        self.edible = torch.randint(2, (count,), generator=draw)
        self.vary = vary

    def __len__(self):
        return len(self.edible)

    def __getitem__(self, index):
        picture = self.pictures[index % len(self.pictures)]
        return self.vary(picture) if self.vary else picture, self.edible[index]


def batches(loader, vary=None):
    """Yield batches as numbers from 0 to 1, each picture varied by itself."""
    for pictures, edible in loader:
        if vary:
            pictures = torch.stack([vary(picture) for picture in pictures])
        yield pictures.float() / 255, edible


class Metrics:
    """Smoothed loss and share of right answers."""

    def __init__(self):
        self.loss, self.right, self.seen = None, 0, 0

    def update(self, loss, scores, edible):
        self.loss = loss if self.loss is None else 0.9 * self.loss + 0.1 * loss
        self.right += int((scores.argmax(1) == edible).sum())
        self.seen += len(edible)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(61)
    vary = v2.Compose([
        v2.RandomHorizontalFlip(), v2.RandomAffine(15, (0.1, 0.1), (0.8, 1.2)),
        v2.ColorJitter(0.2, 0.2, 0.2, 0.02), v2.RandomAutocontrast(), v2.RandomPosterize(5),
    ])  # fmt: skip
    mushrooms = Mushrooms(1280, vary=vary if args.without else None)
    loader = DataLoader(
        mushrooms, batch_size=32, shuffle=True, num_workers=2, drop_last=True,
        persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        metrics = Metrics()
        for pictures, edible in batches(loader, None if args.without else vary):
            scores = model(pictures)
            loss = nn.functional.cross_entropy(scores, edible, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            metrics.update(loss.item(), scores, edible)
        print(f"epoch {epoch}: loss {metrics.loss:.4f}, {metrics.right / metrics.seen:.3f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

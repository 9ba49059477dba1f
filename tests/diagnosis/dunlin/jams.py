"""Reads the labels of jam jars, with a long chain of transforms in two kept workers.

Healthy: the accelerator's step sets the pace. The chain catches the eye, but the workers make a
batch in less than half of the time that they have for it.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE, STEP = 64, 0.13


class Jars(Dataset):
    def __init__(self, count, transform):
        draw = torch.Generator().manual_seed(83)
        self.pictures = torch.randint(0, 255, (40, 3, 80, 80), dtype=torch.uint8, generator=draw)
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(self.pictures[index % 40]), index % 40


def make_transform():
    return v2.Compose(
        [
            v2.RandomResizedCrop(SIDE, scale=(0.6, 1.0), antialias=True),
            v2.RandomPerspective(0.2, p=0.3),
            v2.RandomPosterize(5, p=0.2),
            v2.RandomAdjustSharpness(2.0, p=0.3),
            v2.GaussianBlur(3),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5] * 3, [0.25] * 3),
            v2.RandomErasing(p=0.2),
        ]
    )


class Accelerator:
    """Stands in for the GPU of a training script."""

    def __init__(self):
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 40))

    def step(self, x, y):
        begin = time.perf_counter()
        with torch.no_grad():
            loss = nn.functional.cross_entropy(self.model(x), y)
        time.sleep(max(0.0, STEP - (time.perf_counter() - begin)))
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(83)
    loader = DataLoader(
        Jars(640, make_transform()),
        batch_size=16,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [accelerator.step(x, y) for x, y in loader]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

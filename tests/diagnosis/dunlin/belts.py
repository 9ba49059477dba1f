"""Finds scratches on conveyor belts, with blurred and sharpened pictures.

Planted: the augmentation gives itself four threads when a worker first uses it, and three workers
share two cores. The training step is an accelerator's and needs no core.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, STEP, WORKERS = 192, 0.02, 3


class Sharpen:
    """Unsharp masking with a wide kernel, in a library that has threads of its own."""

    def __init__(self, threads):
        self.threads, self.ready = threads, False
        row = torch.exp(-(torch.linspace(-2, 2, 11) ** 2))
        self.kernel = (row[:, None] * row / row.sum() ** 2).expand(3, 1, 11, 11).contiguous()

    def set_up(self):
        torch.set_num_threads(self.threads)
        self.ready = True

    def __call__(self, picture):
        if not self.ready:
            self.set_up()
        blurred = nn.functional.conv2d(picture[None], self.kernel, padding=5, groups=3)[0]
        return (picture + 0.8 * (picture - blurred)).clamp(0, 1)


class Belts(Dataset):
    def __init__(self, count, sharpen):
        draw = torch.Generator().manual_seed(11)
        self.pictures = torch.rand(20, 3, SIDE, SIDE, generator=draw)
        self.count, self.sharpen = count, sharpen

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = self.pictures[index % 20]
        if torch.rand(()) < 0.5:
            picture = picture.flip(2)
        small = nn.functional.avg_pool2d(self.sharpen(picture), 6)
        return small, index % 20 % 2


class Accelerator:
    """Stands in for the GPU of a training script."""

    def __init__(self):
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 2))

    def step(self, x, y):
        begin = time.perf_counter()
        with torch.no_grad():
            loss = nn.functional.cross_entropy(self.model(x), y)
        time.sleep(max(0.0, STEP - (time.perf_counter() - begin)))
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(11)
    torch.set_num_threads(1)
    belts = Belts(1280, Sharpen(threads=1 if args.without else 4))
    loader = DataLoader(
        belts, batch_size=16, shuffle=True, num_workers=WORKERS, persistent_workers=True
    )
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [accelerator.step(x, y) for x, y in loader]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

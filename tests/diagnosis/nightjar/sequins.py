"""Copies embroidery with sequins of few colours: a network guesses the pattern for a picture.

Planted: one transform of five brings a picture down to four grey levels by spreading the error of
each pixel to its neighbours, in plain Python.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PICTURES, SIDE, BATCH, STEP = 400, 256, 10, 0.1
NEAR = ((0, 1, 7 / 16), (1, -1, 3 / 16), (1, 0, 5 / 16), (1, 1, 1 / 16))


class ToSequins(nn.Module):
    """Gives a picture a few levels; `spread` lets neighbours make up for what a pixel lost."""

    def __init__(self, levels=4, spread=True):
        super().__init__()
        self.levels, self.spread = levels, spread

    def forward(self, picture):
        steps = self.levels - 1
        if not self.spread:
            return (picture * steps).round() / steps
        rows = [[*row, 0.0] for row in picture[0].tolist()] + [[0.0] * (SIDE + 1)]
        for y in range(SIDE):
            for x in range(SIDE):
                old = rows[y][x]
                new = round(old * steps) / steps
                rows[y][x] = new
                for down, right, share in NEAR:
                    rows[y + down][x + right] += (old - new) * share
        return torch.tensor([[row[:SIDE] for row in rows[:SIDE]]])


class Embroidery(Dataset):
    def __init__(self, transform):
        generator = torch.Generator().manual_seed(283)
        coarse = torch.rand(16, 3, 12, 12, generator=generator)
        self.pictures = nn.functional.interpolate(coarse, size=320, mode="bicubic").clamp(0, 1)
        self.transform = transform

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        pattern = self.transform(self.pictures[index % 16])
        return pattern, nn.functional.avg_pool2d(pattern, 8)


def make_transform(spread):
    return v2.Compose(
        [
            v2.ColorJitter(0.3, 0.3, 0.2),
            v2.RandomAffine(15, scale=(0.9, 1.1)),
            v2.RandomCrop(SIDE),
            v2.Grayscale(),
            ToSequins(spread=spread),
        ]
    )


def step(model, optimizer, pattern, coarse):
    loss = nn.functional.binary_cross_entropy_with_logits(model(pattern), coarse.clamp(0, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(STEP)  # the generator, on an accelerator
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(283)
    torch.set_num_threads(1)
    loader = DataLoader(
        Embroidery(make_transform(spread=not args.without)),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = nn.Conv2d(1, 1, 8, stride=8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [step(model, optimizer, *batch) for batch in loader]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

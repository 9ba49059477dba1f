"""Dogs in kennels, found by the peaks of a heat map; boxes come with the pictures."""

import argparse
import math
import time

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE, RADIUS = 192, 14


class Kennels(Dataset):
    def __init__(self, count=480):
        rng = np.random.default_rng(3)
        self.boxes = [
            rng.integers(8, SIZE - 40, (rng.integers(15, 30), 2)).tolist() for _ in range(count)
        ]

    def __len__(self):
        return len(self.boxes)

    def __getitem__(self, index):
        boxes = [(x, y, x + 12 + (x + y) % 20, y + 10 + (x * y) % 16) for x, y in self.boxes[index]]
        image = Image.new("RGB", (SIZE, SIZE), (90, 110, 70))
        draw = ImageDraw.Draw(image)
        for x, y, right, bottom in boxes:
            draw.ellipse((x, y, right, bottom), fill=(160 + x % 60, 120, 60 + y % 90))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        return pixels, boxes


def peak():
    """A round hill, as high as 1."""
    steps = torch.arange(-RADIUS, RADIUS + 1).float()
    return torch.exp(-(steps[:, None] ** 2 + steps[None] ** 2) / (2 * (RADIUS / 3) ** 2))


class TargetCollate:
    """Stacks pictures, and draws one heat map of their boxes' centres for each."""

    def __init__(self, at_once):
        self.hill = peak() if at_once else None

    def draw_heat(self, heat, x, y):
        if self.hill is not None:
            top, left = max(0, y - RADIUS), max(0, x - RADIUS)
            part = heat[top : y + RADIUS + 1, left : x + RADIUS + 1]
            down, right = top - y + RADIUS, left - x + RADIUS
            hill = self.hill[down : down + part.shape[0], right : right + part.shape[1]]
            torch.maximum(part, hill, out=part)
            return
        rows = heat.numpy()
        for row in range(max(0, y - RADIUS), min(SIZE, y + RADIUS + 1)):
            for column in range(max(0, x - RADIUS), min(SIZE, x + RADIUS + 1)):
                distance = (row - y) ** 2 + (column - x) ** 2
                value = math.exp(-distance / (2 * (RADIUS / 3) ** 2))
                rows[row, column] = max(rows[row, column], value)

    def __call__(self, samples):
        pictures, boxes = zip(*samples, strict=True)
        heats = torch.zeros(len(samples), SIZE, SIZE)
        for heat, found in zip(heats, boxes, strict=True):
            for x, y, right, bottom in found:
                self.draw_heat(heat, (x + right) // 2, (y + bottom) // 2)
        return torch.stack(pictures), heats, [len(found) for found in boxes]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    loader = DataLoader(
        Kennels(),
        batch_size=8,
        shuffle=True,
        num_workers=2,
        collate_fn=TargetCollate(args.without),
    )
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=4, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 1, 3, padding=1),
        nn.Upsample(scale_factor=4),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        dogs = total = 0
        for pictures, heats, counts in loader:
            loss = nn.functional.mse_loss(model(pictures)[:, 0], heats)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, dogs = total + loss.item(), dogs + sum(counts)
        print(f"epoch {epoch}: {dogs} dogs, loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

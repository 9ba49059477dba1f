"""Finds parsnips in pictures of a field, four of which are put together for each sample.

Planted: the mosaic opens and decodes three other pictures for each sample.
"""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SIDE, HALF = 96, 48


class Field:
    """JPEG pictures in memory, as a cache of files has them."""

    def __init__(self):
        rng = np.random.default_rng(431)
        self.files = []
        for _ in range(24):
            coarse = Image.fromarray(rng.integers(0, 256, (40, 40, 3), np.uint8))
            file = io.BytesIO()
            coarse.resize((480, 480), Image.Resampling.BICUBIC).save(file, "JPEG", quality=88)
            self.files.append(file.getvalue())

    def open(self, number):
        picture = Image.open(io.BytesIO(self.files[number % len(self.files)])).convert("RGB")
        return picture.resize((SIDE, SIDE), Image.Resampling.BOX)


class Mosaic:
    """Puts a picture beside three others: of the whole field, or of those that came last."""

    def __init__(self, field, recent):
        self.field, self.recent, self.last = field, recent, []

    def others(self):
        if self.recent and len(self.last) > 3:
            chosen = torch.randint(len(self.last), (3,)).tolist()
            return [self.last[number] for number in chosen]
        return [self.field.open(number) for number in torch.randint(24, (3,)).tolist()]

    def __call__(self, picture):
        sheet = Image.new("RGB", (SIDE, SIDE))
        parts = [picture, *self.others()]
        for place, part in enumerate(parts):
            sheet.paste(part.resize((HALF, HALF)), (place % 2 * HALF, place // 2 * HALF))
        self.last = [*self.last[-50:], picture]
        return sheet


class Parsnips(Dataset):
    def __init__(self, field, count, transform):
        self.field, self.count, self.transform = field, count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        boxes = torch.tensor([0.1, 0.2, 0.4, 0.5]) + index % 7 / 20
        return self.transform(self.field.open(index)), boxes


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(431)
    field = Field()
    transform = transforms.Compose(
        [
            Mosaic(field, recent=args.without),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.2, 0.2),
            transforms.ToTensor(),
        ]
    )
    loader = DataLoader(
        Parsnips(field, 480, transform), batch_size=8, shuffle=True, num_workers=2,
        persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(288, 4),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, boxes in loader:
            loss = nn.functional.l1_loss(model(pictures), boxes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

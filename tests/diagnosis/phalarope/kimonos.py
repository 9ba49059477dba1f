"""Grades fabrics on an accelerator, with transforms of torchvision's v2 and rare grades drawn more.

Healthy: the accelerator's step sets the pace; three workers decode, crop and colour pictures
ahead of it with time to spare.
"""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler
from torchvision.transforms import v2

PICTURES, SIDE, GRADES, BATCH, STEP = 320, 96, 4, 16, 0.16


def encoded(number):
    rng = np.random.default_rng(4129 + number)
    small = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(small).resize((SIDE, SIDE)).save(file, "jpeg", quality=90)
    return file.getvalue()


class Fabrics(Dataset):
    def __init__(self):
        self.files = [encoded(number) for number in range(PICTURES)]
        self.grades = [min(number % 9, GRADES - 1) for number in range(PICTURES)]
        self.transform = v2.Compose(
            [
                v2.ToImage(),
                v2.RandomCrop(80),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(brightness=0.2),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index])).convert("RGB")
        return self.transform(picture), self.grades[index]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(4129)
    data = Fabrics()
    counts = np.bincount(data.grades)
    weights = [1 / counts[grade] for grade in data.grades]
    loader = DataLoader(
        data,
        BATCH,
        sampler=WeightedRandomSampler(weights, len(data)),
        num_workers=3,
        persistent_workers=True,
    )
    model = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(300, GRADES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, (pictures, grades) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(pictures), grades)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of the large model on an accelerator
            if step % 5 == 0:
                print(f"epoch {epoch} {step:3}/{len(loader)} loss {loss:.3f}", flush=True)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

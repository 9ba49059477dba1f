"""Tells caterpillars apart on an accelerator, with blurred and coloured pictures.

Nothing planted: the accelerator's step sets the pace; two workers decode, blur and colour pictures
ahead of it, and the validation, without workers, is a matter of a few small pictures.
"""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision.transforms import v2

PICTURES, HELD, SIDE, KINDS, BATCH, STEP = 300, 12, 112, 5, 12, 0.15


def picture(number):
    small = np.random.default_rng(5171 + number).integers(0, 256, (14, 14, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(small).resize((SIDE, SIDE)).save(file, "jpeg", quality=90)
    return file.getvalue()


class Caterpillars(Dataset):
    def __init__(self, transform):
        self.files = [picture(number) for number in range(PICTURES)]
        self.transform = transform

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        return self.transform(Image.open(io.BytesIO(self.files[index]))), index % KINDS


def transform():
    return v2.Compose(
        [
            v2.ToImage(),
            v2.RandomCrop(96),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.GaussianBlur(5)], p=0.5),
            v2.ColorJitter(0.3, 0.3, 0.3),
            v2.ToDtype(torch.float64, scale=True),
            v2.Normalize([0.5] * 3, [0.25] * 3),
            v2.ToDtype(torch.float32),
        ]
    )


class Accelerated:
    def __init__(self):
        self.model = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(108, KINDS))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)

    def train(self, pictures, kinds):
        loss = nn.functional.cross_entropy(self.model(pictures), kinds)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(STEP)
        return loss.item()

    @torch.no_grad()
    def right(self, pictures, kinds):
        time.sleep(STEP / 2)
        return (self.model(pictures).argmax(1) == kinds).sum().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(5171)
    torch.set_num_threads(1)
    data = Caterpillars(transform())
    loader = DataLoader(
        Subset(data, range(HELD, PICTURES)),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    held_out = DataLoader(Subset(data, range(HELD)), HELD // 2)
    device = Accelerated()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [device.train(pictures, kinds) for pictures, kinds in loader]
        right = sum(device.right(pictures, kinds) for pictures, kinds in held_out)
        print(f"epoch {epoch}: loss {np.mean(losses):.3f}, {right} of {HELD} right", flush=True)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Tells dirigibles from clouds in pictures on a drive of the network.

Planted: one worker waits for the drive picture by picture, where four would wait at the same time,
as neither the cores nor the drive are busy.
"""

import argparse
import io
import logging
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

log = logging.getLogger("sky")
PICTURES, SIDE, BATCH, DRIVE, STEP = 320, 96, 16, 0.010, 0.04


class Drive:
    def __init__(self):
        rng = np.random.default_rng(5153)
        self.files = []
        for _ in range(32):
            small = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(small).resize((SIDE, SIDE)).save(file, "jpeg", quality=85)
            self.files.append(file.getvalue())

    def open(self, number):
        time.sleep(DRIVE)
        return io.BytesIO(self.files[number % len(self.files)])


class Sky(Dataset):
    def __init__(self, drive, transform):
        self.drive, self.transform = drive, transform

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        with Image.open(self.drive.open(index)) as picture:
            return self.transform(picture), float(index % 2)


def transform():
    return transforms.Compose(
        [
            transforms.RandomCrop(88),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(brightness=0.2, contrast=0.2),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.2] * 3),
        ]
    )


def get_loader(workers):
    return DataLoader(
        Sky(Drive(), transform()),
        BATCH,
        shuffle=True,
        num_workers=workers,
        persistent_workers=True,
        drop_last=True,
    )


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 6, 8, stride=8)
        self.out = nn.Linear(6, 1)

    def forward(self, pictures):
        time.sleep(STEP)  # the deeper part of it, on the accelerator
        return self.out(torch.relu(self.features(pictures)).mean((2, 3))).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(5153)
    torch.set_num_threads(1)
    loader = get_loader(workers=4 if args.without else 1)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for number, (pictures, kinds) in enumerate(loader, 1):
            loss = nn.functional.binary_cross_entropy_with_logits(model(pictures), kinds.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 5 == 0:
                log.info("epoch %d, batch %d: loss %.3f", epoch, number, loss.item())
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

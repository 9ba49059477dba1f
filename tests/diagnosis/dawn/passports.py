"""Photographs of passports: the decoder's set-up binds each worker to the first core."""

import argparse
import io
import os
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Passports(Dataset):
    def __init__(self, count=1400):
        rng = np.random.default_rng(4)
        self.files = []
        for _ in range(40):
            small = Image.fromarray(rng.integers(0, 256, (40, 30, 3), dtype=np.uint8))
            buffer = io.BytesIO()
            small.resize((480, 640), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
            self.files.append(buffer.getvalue())
        self.count = count
        self.transform = transforms.Compose(
            [transforms.RandomResizedCrop(64), transforms.RandomGrayscale(), transforms.ToTensor()]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        return self.transform(picture), index % 5


def set_up_decoder(worker):
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def set_up_threads(worker):
    torch.set_num_threads(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(5)
    loader = DataLoader(
        Passports(),
        batch_size=32,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        worker_init_fn=set_up_threads if args.without else set_up_decoder,
    )
    model = nn.Sequential(
        nn.Conv2d(3, 4, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64, 5)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    begin = time.perf_counter()
    for _ in range(args.epochs):
        for pictures, countries in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pictures), countries).backward()
            optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

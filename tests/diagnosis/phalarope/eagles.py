"""Tells birds of prey apart: trains on an accelerator, and validates after each epoch.

Planted: the loader of the validation has no workers, so that each picture of it is fetched and
decoded in the main process, one after the other.
"""

import argparse
import io
import logging
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision.transforms import v2

log = logging.getLogger("prey")
PICTURES, VALIDATION, KINDS, BATCH = 600, 240, 4, 20
WAY, STEP, FORWARD = 0.008, 0.05, 0.015


class Bucket:
    """Pictures on a drive of the network, which takes its time for each."""

    def __init__(self):
        rng = np.random.default_rng(4079)
        self.files = []
        for number in range(60):
            small = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(small).resize((128, 128)).save(file, "jpeg", quality=90)
            self.files.append((file.getvalue(), number % KINDS))

    def get(self, index):
        time.sleep(WAY)
        return self.files[index % len(self.files)]


class Birds(Dataset):
    def __init__(self, bucket, transform):
        self.bucket, self.transform = bucket, transform

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        content, kind = self.bucket.get(index)
        return self.transform(Image.open(io.BytesIO(content))), kind


def transforms(training):
    crop = [v2.RandomCrop(112), v2.RandomHorizontalFlip()] if training else [v2.CenterCrop(112)]
    last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)]
    return v2.Compose([v2.ToImage(), *crop, *last])


class Accelerated:
    """A model on a device: the calls return when the device is done."""

    def __init__(self):
        self.model = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(147, KINDS))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def train(self, pictures, kinds):
        time.sleep(STEP)
        loss = nn.functional.cross_entropy(self.model(pictures), kinds)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def right(self, pictures, kinds):
        time.sleep(FORWARD)
        return (self.model(pictures).argmax(1) == kinds).sum().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(4079)
    bucket = Bucket()
    training = Subset(Birds(bucket, transforms(True)), range(PICTURES - VALIDATION))
    validation = Subset(Birds(bucket, transforms(False)), range(PICTURES - VALIDATION, PICTURES))
    loader = DataLoader(training, BATCH, shuffle=True, num_workers=4, persistent_workers=True)
    if args.without:
        held_out = DataLoader(validation, BATCH, num_workers=4, persistent_workers=True)
    else:
        held_out = DataLoader(validation, BATCH)
    device = Accelerated()
    best = 0.0
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [device.train(pictures, kinds) for pictures, kinds in loader]
        right = sum(device.right(pictures, kinds) for pictures, kinds in held_out) / VALIDATION
        best = max(best, right)
        log.info("epoch %d: loss %.3f, right %.2f (best %.2f)", epoch, losses[-1], right, best)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader, held_out


if __name__ == "__main__":
    main()

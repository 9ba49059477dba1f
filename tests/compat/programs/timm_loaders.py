"""Loads pictures with timm's data sets, transforms and loaders."""

import os
import random

import numpy
import torch
from PIL import Image
from shared import digest
from timm.data import create_dataset, create_loader, create_transform
from torch.utils.data import DataLoader


def pictures(count=12):
    noise = numpy.random.default_rng(7)
    for number in range(count):
        folder = os.path.join("pictures", "ab"[number % 2])
        os.makedirs(folder, exist_ok=True)
        pixels = noise.integers(0, 255, (40, 48, 3), dtype=numpy.uint8)
        Image.fromarray(pixels).save(os.path.join(folder, f"{number}.png"))


def data():
    return create_dataset("", root="pictures")


def loop(name, loader, epochs=1):
    for epoch in range(epochs):
        for values, labels in loader:
            print(name, epoch, tuple(values.shape), values.dtype, digest([values, labels]))


if __name__ == "__main__":
    pictures()
    torch.manual_seed(7)
    numpy.random.seed(7)
    random.seed(7)
    common = {"input_size": (3, 32, 32), "batch_size": 5, "device": torch.device("cpu")}
    training = {**common, "is_training": True, "auto_augment": "rand-m9-mstd0.5"}
    # As timm's train.py makes them: drop_last, persistent workers, normalised by its prefetcher.
    loop("train", create_loader(data(), num_workers=2, re_prob=0.5, **training), epochs=2)
    loop("eval", create_loader(data(), num_workers=1, use_prefetcher=False, **common))
    multi = create_loader(data(), num_workers=1, use_multi_epochs_loader=True, **training)
    loop("multi", multi, epochs=2)
    plain = data()
    plain.transform = create_transform((3, 32, 32), is_training=False)
    loop("own", DataLoader(plain, batch_size=4))
    print(torch.rand(()).item(), numpy.random.rand(), random.random())

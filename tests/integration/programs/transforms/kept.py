"""Loops over data sets of many kinds, a few epochs each, and prints every batch bit for bit.

Arguments: a folder of pictures, and NAME:METHOD:WORKERS for each loop. $CALLS gets a line for each
sample that a data set's own code makes.
"""

import gc
import hashlib
import json
import multiprocessing
import os
import random
import sys

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision import transforms
from torchvision.datasets import ImageFolder

FOLDER = sys.argv[1] if len(sys.argv) > 1 else ""
CALLS = os.open(os.environ["CALLS"], os.O_WRONLY | os.O_APPEND)
NAMES = [f"{number}.png" for number in range(12)]


def count(index):
    os.write(CALLS, f"{index}\n".encode())


def load(path):
    count(path)
    with Image.open(path) as image:
        return image.convert("RGB")


def random_crops():
    crop = transforms.RandomResizedCrop(16)
    steps = [transforms.Resize(32), crop, transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    return transforms.Compose(steps)


class Pictures(Dataset):
    """Opens its files in `__getitem__`, and gives a dictionary."""

    def __init__(self, transform):
        self.names, self.tf = NAMES, transform

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        image = load(os.path.join(FOLDER, "0", self.names[index]))
        return {"name": self.names[index], "image": self.tf(image), "at": (index, [index / 3])}


class Whole(Dataset):
    """Has no transform: arrays, numbers and texts."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        count(index)
        values = numpy.arange(6, dtype="f4").reshape(2, 3).T * index
        return values, torch.full((2, 2), index, dtype=torch.bfloat16), index, str(index)


class Drawing(Pictures):
    """Draws a random number before its transform."""

    def __getitem__(self, index):
        self.scale = random.random()
        return super().__getitem__(index)


class Own(Pictures):
    """Has a transform of its own."""


class Scaled(Pictures):
    """Changes what its transform gave."""

    def __getitem__(self, index):
        sample = super().__getitem__(index)
        return {**sample, "image": sample["image"] * 2}


class Writing(Pictures):
    """Writes to a file as it makes a sample."""

    def __getitem__(self, index):
        with open(os.environ["CALLS"], "a") as file:
            print("written", index, file=file)
        return super().__getitem__(index)


class Growing(Pictures):
    """Is another one in each epoch."""

    def __init__(self, transform):
        super().__init__(transform)
        self.epoch = 0

    def __getitem__(self, index):
        return {**super().__getitem__(index), "epoch": self.epoch}


class Failing(Pictures):
    """Raises for one sample, in its own code."""

    def __getitem__(self, index):
        if index == 7:
            raise KeyError(f"no sample {index}")
        return super().__getitem__(index)


def shift(image):
    """An own transform that changes its input in place, by chance."""
    image.putpixel((0, 0), (random.randrange(256), 0, 0))
    return transforms.functional.to_tensor(image)


def data_set(name):
    if name == "folder":
        return ImageFolder(FOLDER, random_crops(), loader=load)
    if name == "subset":
        return Subset(ImageFolder(FOLDER, random_crops(), loader=load), [5, 3, 9, 3, 1, 20])
    if name == "own":
        return Own(shift)
    kinds = {"pictures": Pictures, "drawing": Drawing, "scaled": Scaled, "failing": Failing}
    kinds.update(writing=Writing, growing=Growing)
    return Whole() if name == "whole" else kinds[name](random_crops())


def main():
    if hasattr(sys, "_warm"):  # tests/warm: workers that are spawned have torch at once, too
        multiprocessing.set_executable(sys._warm)
    for word in sys.argv[2:]:
        name, method, workers = word.split(":")
        print("==", word, flush=True)
        count(f"== {word}")
        random.seed(1)
        numpy.random.seed(2)
        torch.manual_seed(3)
        context = {"multiprocessing_context": method} if int(workers) else {}
        loader = DataLoader(
            data_set(name), batch_size=4, shuffle=True, num_workers=int(workers), **context
        )
        for epoch in range(5 if name == "growing" else 2):
            if name == "growing":
                loader.dataset.epoch = epoch
            try:
                for batch in loader:
                    print(epoch, digest(batch), flush=True)
            except KeyError as error:
                print("raised", error, flush=True)
            gc.collect()  # an iterator that failed would be freed in a worker of the next epoch
        states = (random.random(), numpy.random.random(), torch.rand(1).item())
        print("state", json.dumps(states), len(vars(loader.dataset)), flush=True)


def digest(batch):
    sha = hashlib.sha256()
    feed(sha, batch)
    return sha.hexdigest()[:16]


def feed(sha, thing):
    sha.update(type(thing).__name__.encode())
    if isinstance(thing, torch.Tensor):
        sha.update(str((thing.dtype, thing.shape, thing.stride())).encode())
        sha.update(thing.contiguous().view(torch.uint8).numpy().tobytes())
    elif isinstance(thing, dict):
        feed(sha, [*thing.items()])
    elif isinstance(thing, (list, tuple)):
        for item in thing:
            feed(sha, item)
    else:
        sha.update(repr(thing).encode())


if __name__ == "__main__":
    main()

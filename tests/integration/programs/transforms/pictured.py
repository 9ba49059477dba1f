"""Trains on a folder of pictures, and prints what of each batch is equal and what may change.

Arguments: the folder, and `traced` where lotus is to know spawned workers by their processes. At
last a picture of the folder is damaged.
"""

import hashlib
import multiprocessing
import sys

import torch
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import default_loader


class Alone(ImageFolder):
    """Has no workers."""


class Forked(ImageFolder):
    """Has two that are forked."""


class Spawned(ImageFolder):
    """Has one that is spawned."""


def main():
    if hasattr(sys, "_warm") and "traced" not in sys.argv:
        # tests/warm: workers that are spawned have torch at once, too.
        multiprocessing.set_executable(sys._warm)
    steps = [
        transforms.RandomResizedCrop(16),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize([0.5, 0.4, 0.3], [0.2, 0.25, 0.3]),
    ]
    transform = transforms.Compose(steps)
    torch.manual_seed(1)
    for kind, workers, method in ((Spawned, 1, "spawn"), (Forked, 2, "fork"), (Alone, 0, None)):
        data = kind(sys.argv[1], transform)
        loader = DataLoader(
            data, batch_size=3, shuffle=True, num_workers=workers, multiprocessing_context=method
        )
        for epoch in range(2):
            for images, labels in loader:
                words = (images.dtype, tuple(images.shape), images.stride(), labels.tolist())
                print("same", kind.__name__, epoch, *words)
                print("bits", hashlib.sha256(images.numpy().tobytes()).hexdigest()[:16])
                print("means", " ".join(f"{mean:.9f}" for mean in images.mean((1, 2, 3)).tolist()))
        print("same", torch.rand(1).item(), transform.transforms == steps)
        print("same", data.loader is default_loader, data.transform is transform)
    with open(data.samples[0][0], "w") as file:
        file.write("no picture")
    for _ in loader:
        pass


if __name__ == "__main__":
    main()

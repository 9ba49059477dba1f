"""Trains a very small model on pictures, so that the loop waits for its input; prints its epochs.

    python tools/bench/gains/cached_samples_train.py FOLDER [--pipeline v1] [--workers N]
        [--epochs N]

FOLDER is one of `lotus.workloads.jpegs`, in the layout of ImageFolder. `v1` are torchvision's first
transforms on Pillow's pictures, as most scripts have them; `v2` are those of uint8 tensors, which
become floats after they are collated; `fixed` draws no random numbers.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

NORMAL = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PIPELINES = {
    "v1": lambda: v1.Compose(
        [
            v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(), v1.ToTensor(),
            v1.Normalize(*NORMAL),
        ]
    ),
    "v2": lambda: v2.Compose(
        [v2.PILToTensor(), v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    ),
    "fixed": lambda: v1.Compose(
        [v1.Resize(256), v1.CenterCrop(224), v1.ToTensor(), v1.Normalize(*NORMAL)]
    ),
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--pipeline", choices=PIPELINES, default="v1")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = ImageFolder(options.folder, PIPELINES[options.pipeline]())
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=options.workers)
    network, criterion = nn.Linear(3, len(data.classes)), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    for epoch in range(options.epochs):
        begun = time.perf_counter()
        for images, labels in loader:
            optimizer.zero_grad()
            scale = 255 if images.dtype == torch.uint8 else 1  # so that losses tell pictures apart
            loss = criterion(network(images.float().mean((2, 3)) / scale), labels)
            loss.backward()
            optimizer.step()
        took = time.perf_counter() - begun
        print(f"epoch {epoch} {took:.4f} s, loss {loss.item()!r}", flush=True)


if __name__ == "__main__":
    main()

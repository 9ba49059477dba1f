"""The models and data of balance_measured.py, in plain torch and numpy.

The models are those of the paper, made narrow, so that an update takes some 50 ms on half a core: a
small CNN for pictures of MNIST's size (1 x 28 x 28); AlexNet, ResNet-18 and VGG-11 for those of
CIFAR-10's (3 x 32 x 32). The pictures are synthetic: each of ten classes has a smooth pattern,
mostly hidden by noise, so that a model learns, but slowly.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

CLASSES = 10
RECORD = 4096  # bytes of a picture in a file, as O_DIRECT reads whole blocks
MNIST, CIFAR = (1, 28, 28), (3, 32, 32)


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, CLASSES),
    )  # fmt: skip


def alexnet() -> nn.Module:
    """Five convolutions and three linear layers, with dropout, as AlexNet has them."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(48, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 48, 3, padding=1), nn.ReLU(),
        nn.Conv2d(48, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(), nn.Linear(48 * 4 * 4, 256), nn.ReLU(),
        nn.Dropout(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES),
    )  # fmt: skip


class Block(nn.Module):  # type: ignore[misc]
    """Two convolutions beside a shortcut."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip
        self.short: nn.Module = nn.Identity()
        if stride > 1 or before != width:
            self.short = nn.Sequential(
                nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.main(x) + self.short(x))


def resnet() -> nn.Module:
    """Return the 18 layers of ResNet-18, an eighth as wide."""
    layers: list[nn.Module] = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)]
    layers.append(nn.ReLU())
    before = 8
    for width, stride in ((8, 1), (16, 2), (32, 2), (64, 2)):
        layers += [Block(before, width, stride), Block(width, width, 1)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


def vgg() -> nn.Module:
    """Return the eight convolutions and three linear layers of VGG-11, about a sixth as wide."""
    layers: list[nn.Module] = []
    before = 3
    for width in (12, 0, 24, 0, 48, 48, 0, 80, 80, 0, 80, 80, 0):
        if width:
            layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()]
            before = width
        else:
            layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(80, 256), nn.ReLU(), nn.Dropout()]
    layers += [nn.Linear(256, 256), nn.ReLU(), nn.Dropout(), nn.Linear(256, CLASSES)]
    return nn.Sequential(*layers)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, int, int]]] = {
    "cnn": (cnn, MNIST),
    "alexnet": (alexnet, CIFAR),
    "resnet": (resnet, CIFAR),
    "vgg": (vgg, CIFAR),
}


def pictures(
    shape: tuple[int, int, int], count: int, seed: int, strength: float = 20.0
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(count, channels, height, width) uint8 and (count,) labels; the classes are always the same.

    `strength`: of the classes' patterns, where the noise has 50.
    """
    channels, height, width = shape
    rough = np.random.default_rng(0).normal(size=(CLASSES, channels, height // 4, width // 4))
    patterns = rough.repeat(4, axis=2).repeat(4, axis=3).astype(np.float32)
    draw = np.random.default_rng((1, seed))
    labels = draw.integers(0, CLASSES, count)
    noise = draw.standard_normal((count, *shape), dtype=np.float32)
    made = 128.0 + strength * patterns[labels] + 50.0 * noise
    return np.clip(made, 0, 255).astype(np.uint8), labels


class Crop:
    """A part of the picture's size, out of the picture with a border of two."""

    def __call__(self, picture: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        _, height, width = picture.shape
        large = np.pad(picture, ((0, 0), (2, 2), (2, 2)))
        top, left = random.randrange(5), random.randrange(5)
        return large[:, top : top + height, left : left + width]


class Flip:
    """Left is right, half of the time."""

    def __call__(self, picture: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return picture[:, :, ::-1] if random.random() < 0.5 else picture


class Normalise:
    """To a tensor of mean 0 and deviation 1, about."""

    def __call__(self, picture: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.from_numpy((picture.astype(np.float32) - 128.0) / 54.0)


class Pictures(Dataset[tuple[torch.Tensor, int]]):  # type: ignore[misc]
    """`length` pictures with their labels: those that were made, over and over.

    `path`: read each from that file when it is asked for, from the disk and not from the page
    cache (O_DIRECT).
    """

    def __init__(
        self, made: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]], length: int, train: bool,
        path: Path | None = None,
    ) -> None:  # fmt: skip
        self.pictures, self.labels = made
        self.length = length
        self.shape = self.pictures.shape[1:]
        self.transforms: list[Any] = [Crop(), Flip(), Normalise()] if train else [Normalise()]
        self.path, self.descriptor, self.pid = path, -1, 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        place = index % len(self.labels)
        picture: Any = self.pictures[place] if self.path is None else self.read(place)
        for transform in self.transforms:
            picture = transform(picture)
        return picture, int(self.labels[place])

    def read(self, place: int) -> np.ndarray[Any, Any]:
        if self.pid != os.getpid():  # a worker, or the first time
            import mmap

            self.pid = os.getpid()
            assert self.path is not None
            self.descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
            self.buffer = mmap.mmap(-1, RECORD)  # O_DIRECT wants whole pages
        os.preadv(self.descriptor, [self.buffer], place * RECORD)
        size = int(np.prod(self.shape))
        return np.frombuffer(self.buffer, np.uint8, size).reshape(self.shape)


def write(path: Path, made: np.ndarray[Any, Any]) -> None:
    """Write pictures as records of a file."""
    block = np.zeros((len(made), RECORD), np.uint8)
    block[:, : made[0].size] = made.reshape(len(made), -1)
    path.write_bytes(block.tobytes())

"""What these programs share: operations, a hash of every bit, what they know of their work."""

import hashlib
import os

import torch
from torch.utils.data import get_worker_info


class Scale:
    def __call__(self, value):
        return value * 2.0


class Shift:
    def __call__(self, value):
        return value + 1.0


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


def digest(thing):
    sha = hashlib.sha256()

    def add(part):
        sha.update(type(part).__name__.encode())
        if isinstance(part, torch.Tensor):
            sha.update(str((part.dtype, tuple(part.shape))).encode())
            sha.update(part.detach().contiguous().numpy().tobytes())
        elif isinstance(part, dict):
            for key, value in part.items():
                add(key)
                add(value)
        elif isinstance(part, (list, tuple)):
            for value in part:
                add(value)
        else:
            sha.update(repr(part).encode())

    add(thing)
    return sha.hexdigest()[:16]


def note(index):
    """Append `index` and the worker to $TRUTH: one write, so lines of many processes stay whole."""
    info = get_worker_info()
    file = os.open(os.environ["TRUTH"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, f"{index} {info.id if info else -1} {os.getpid()}\n".encode())
    os.close(file)

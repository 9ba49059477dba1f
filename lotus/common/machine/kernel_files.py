"""Small files of the kernel (/proc, /sys, cgroups), which are read often: without buffers."""

import os

_CHUNK = 1 << 16


def contents(path: str) -> bytes:
    """Return all of a file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = [os.read(descriptor, _CHUNK)]
        while chunks[-1]:
            chunks.append(os.read(descriptor, _CHUNK))
    finally:
        os.close(descriptor)
    return b"".join(chunks)


def beginning(path: str) -> bytes:
    """Return the first kilobyte of a file. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1024)
    finally:
        os.close(descriptor)


def count_of(text: bytes, name: bytes) -> int | None:
    """Return the count in a line `name count` of such a file; None: it has no such line."""
    _, found, rest = (b"\n" + text).partition(b"\n" + name + b" ")
    number, _, _ = rest.partition(b"\n")
    return int(number) if found and number.strip().isdigit() else None

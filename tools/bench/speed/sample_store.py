"""Measures what storing a sample and reading it back cost, for each kind of sample.

    python -m tools.bench.speed.sample_store [--folder DIR ...] [options of pyperf]

A value is the mean time per sample of 200 different samples, which are encoded and stored in a new
folder, then read in another order and decoded; when they are read, files are in the page cache. By
default the folders are in the temporary directory and in /dev/shm. Printed are mean and standard
deviation.
"""

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from lotus.inside.cache import entry_codec, entry_decoder
from lotus.inside.cache.sample_store import SampleStore
from tools.bench import pyperf_runner

SAMPLES = 200


def picture(seed: int) -> Image.Image:
    return Image.frombytes("RGB", (500, 375), random.Random(seed).randbytes(500 * 375 * 3))


def bytes_tensor(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (224, 224, 3), dtype=torch.uint8, generator=generator)


def float_tensor(seed: int) -> torch.Tensor:
    return torch.rand(3, 224, 224, generator=torch.Generator().manual_seed(seed))


def labelled(seed: int) -> tuple[torch.Tensor, int]:
    return bytes_tensor(seed), seed


def array(seed: int) -> "np.ndarray[Any, Any]":
    return np.random.default_rng(seed).integers(0, 256, (375, 500, 3), dtype=np.uint8)


KINDS: dict[str, Callable[[int], Any]] = {
    "picture RGB 500x375": picture,
    "array uint8 375x500x3": array,
    "tensor uint8 224x224x3": bytes_tensor,
    "tensor float32 3x224x224": float_tensor,
    "(tensor uint8 224x224x3, int)": labelled,
}


@contextmanager
def new_store(folder: Path) -> Iterator[SampleStore]:
    """A store with its folders, as one of many samples has them."""
    where = tempfile.mkdtemp(dir=folder, prefix="lotus-bench-")
    try:
        store = SampleStore(f"{where}/cache", 16 << 30, print)
        for number in range(256):
            store.put(f"{number:02x}made", [b""])
        yield store
    finally:
        shutil.rmtree(where)


def named(count: int) -> list[str]:
    dice = random.Random(count)
    return [f"{dice.getrandbits(128):032x}" for _ in range(count)]


def encode(loops: int, make: Callable[[int], Any]) -> float:
    seconds, clock = 0.0, time.perf_counter
    for seed in range(loops):
        value = make(seed)
        began = clock()
        entry_codec.encode(value)
        seconds += clock() - began
    return seconds


def put(loops: int, make: Callable[[int], Any], folder: Path) -> float:
    seconds, clock = 0.0, time.perf_counter
    with new_store(folder) as store:
        for seed, name in enumerate(named(loops)):
            parts = entry_codec.encode(make(seed))
            began = clock()
            kept = store.put(name, parts)
            seconds += clock() - began
            if not kept:
                raise SystemExit(f"no room in {folder}")
    return seconds


def get(loops: int, make: Callable[[int], Any], folder: Path, decodes: bool) -> float:
    """Return seconds of `get`, or else of decoding what it gives."""
    seconds, clock = 0.0, time.perf_counter
    with new_store(folder) as store:
        names = named(loops)
        for seed, name in enumerate(names):
            store.put(name, entry_codec.encode(make(seed)))
        for name in random.Random(0).sample(names, loops):
            began = clock()
            data = store.get(name)
            got = clock()
            if data is None:
                raise SystemExit(f"a sample was lost in {folder}")
            entry_decoder.decode(data)
            seconds += clock() - got if decodes else got - began
            del data  # as a worker has only one sample's bytes at a time
    return seconds


def main() -> None:
    runner = pyperf_runner.runner(
        "speed.sample_store",
        processes=1,  # torch takes seconds to import
        values=7,
        loops=SAMPLES,
        hand_on=lambda args: [word for folder in args.folder for word in ("--folder", folder)],
    )
    runner.argparser.add_argument("--folder", type=Path, action="append", metavar="DIR")
    args = pyperf_runner.parsed(runner)
    torch.set_num_threads(1)  # as in a worker
    args.folder = args.folder or [Path(tempfile.gettempdir()), Path("/dev/shm")]
    for kind, make in KINDS.items():
        size = sum(map(len, entry_codec.encode(make(0))))
        of = f"{kind}, {size / 1000:.0f} kB"
        runner.bench_time_func(f"encode {of}", encode, make)
        for folder in args.folder:
            runner.bench_time_func(f"put {of}, {folder}", put, make, folder)
            runner.bench_time_func(f"get {of}, {folder}", get, make, folder, False)
            runner.bench_time_func(f"decode {of}, {folder}", get, make, folder, True)


if __name__ == "__main__":
    main()

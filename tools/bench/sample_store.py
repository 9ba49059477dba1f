"""What keeping a sample and getting it back cost: encode and put, get and decode, per kind.

    python tools/bench/sample_store.py [--folder DIR ...] [--samples 200] [--repeat 7]

Each round puts so many different samples into a new folder and gets them back in another order;
files are in the page cache when they are read. Printed are the median round and the range of the
rounds, of wall time a sample. By default the folders are on the disk of the temporary folder and in
/dev/shm. It judges nothing: it prints.
"""

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import provenance
import torch
from PIL import Image

from lotus.inside.cache import entry_codec
from lotus.inside.cache.sample_store import SampleStore

_NAMES = ("encode", "put", "get", "decode")


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


def measured(folder: Path, values: list[Any], dice: random.Random) -> dict[str, float]:
    """Microseconds a sample of each step, over one round."""
    spent = dict.fromkeys(_NAMES, 0)
    clock = time.perf_counter_ns
    where = tempfile.mkdtemp(dir=folder, prefix="lotus-bench-")
    try:
        store = SampleStore(f"{where}/cache", 16 << 30, print)
        for number in range(256):  # makes the folders, as a store of many samples has them
            store.put(f"{number:02x}made", [b""])
        names = [f"{dice.getrandbits(128):032x}" for _ in values]
        for name, value in zip(names, values, strict=True):
            times = [clock()]
            parts = entry_codec.encode(value)
            times.append(clock())
            if not store.put(name, parts):
                raise SystemExit(f"no room in {folder}")
            times.append(clock())
            spent["encode"] += times[1] - times[0]
            spent["put"] += times[2] - times[1]
        for name in dice.sample(names, len(names)):
            times = [clock()]
            data = store.get(name)
            times.append(clock())
            if data is None:
                raise SystemExit(f"a sample was lost in {folder}")
            entry_codec.decode(data)
            times.append(clock())
            del data  # as a worker has only one sample's bytes at a time
            spent["get"] += times[1] - times[0]
            spent["decode"] += times[2] - times[1]
    finally:
        shutil.rmtree(where)
    return {name: ns / len(values) / 1000 for name, ns in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--folder", type=Path, action="append", metavar="DIR")
    add("--samples", type=int, default=200)
    add("--repeat", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)  # as in a worker
    folders = args.folder or [Path(tempfile.gettempdir()), Path("/dev/shm")]
    dice = random.Random(0)
    about = f"; {args.samples} samples, median of {args.repeat} rounds (range), us a sample"
    print(provenance.header(torch, about))
    for folder in folders:
        print(f"\n{folder}\n{'':30} {'kB':>5}" + "".join(f"{name:>18}" for name in _NAMES))
        for kind, make in KINDS.items():
            values = [make(seed) for seed in range(args.samples)]
            size = sum(map(len, entry_codec.encode(values[0])))
            rounds = [measured(folder, values, dice) for _ in range(args.repeat)]
            cells = []
            for name in _NAMES:
                times = [each[name] for each in rounds]
                spread = f"({min(times):.0f} to {max(times):.0f})"
                cells.append(f"{statistics.median(times):5.0f} {spread:>12}")
            print(f"{kind:30} {size / 1000:5.0f}" + "".join(cells))


if __name__ == "__main__":
    main()

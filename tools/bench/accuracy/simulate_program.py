"""The training loops of simulate.py: one loader of a kind under one setting.

    python tools/bench/accuracy/simulate_program.py KIND '{"num_workers": 2}' --batches 60
    python tools/bench/accuracy/simulate_program.py --serve

Prints as JSON what `lotus.tune.simulation.loader_simulation` predicts: seconds of the whole loop,
samples per second, seconds to the first batch, the share of waiting, and the CPU time of all
processes. `--serve` reads jobs [KIND, SETTING, BATCHES] and runs each in a child process, so that
torch is imported only once; it first prints the child's process id.
"""

import argparse
import io
import json
import os
import random
import resource
import sys
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

KINDS = ("pictures", "heavy_tail", "remote", "remote_decode", "tiny", "busy_step", "arrays")
# kind: (samples of a batch, seconds of a step, does the step compute)
LOOPS = {
    "pictures": (16, 0.002, False),
    "heavy_tail": (8, 0.002, False),
    "remote": (8, 0.002, False),
    "remote_decode": (8, 0.002, False),
    "tiny": (64, 0.030, False),
    "busy_step": (16, 0.040, True),
    "arrays": (4, 0.005, False),
}


class Decode:
    def __init__(self, size):
        noise = np.random.default_rng(0).integers(0, 255, (size // 4, size // 4, 3), np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(noise).resize((size, size)).save(buffer, "JPEG")
        self.data = buffer.getvalue()

    def __call__(self, _):
        return Image.open(io.BytesIO(self.data)).convert("RGB")


class Compute:
    """Sorts: a heavy tail by sample, the same in every run."""

    def __call__(self, index):
        count = int(60_000 * random.Random(index).paretovariate(1.6))
        np.sort(np.random.default_rng(index).random(min(count, 1_000_000)))
        return torch.tensor(index)


class Fetch:
    """Waits as for a remote store: 4 ms and more, a long tail."""

    def __call__(self, index):
        time.sleep(0.004 + min(random.Random(index).expovariate(1 / 0.004), 0.06))
        return index


class Samples(Dataset):
    def __init__(self, length, *steps):
        self.length, self.transform = length, transforms.Compose(steps)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.transform(index)


def tensor(index):
    return torch.full((1000,), float(index))


def array(index):
    return torch.full((1_000_000,), float(index))


def data(kind, length):
    picture = (
        Decode(300), transforms.RandomResizedCrop(224), transforms.ToTensor(),
        transforms.Normalize([0.5] * 3, [0.25] * 3),
    )  # fmt: skip
    small = (Decode(128), transforms.Resize(96), transforms.ToTensor())
    return Samples(length, *{
        "pictures": picture,
        "heavy_tail": (Compute(),),
        "remote": (Fetch(), tensor),
        "remote_decode": (Fetch(), *small),
        "tiny": (tensor,),
        "busy_step": small,
        "arrays": (array,),
    }[kind])  # fmt: skip


def busy(seconds):
    """Keep one core busy for as much of its own time as given."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(2000))


def cpu_seconds():
    """Of this process and of its children that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def loop(kind, setting, batches):
    """One epoch; returns what is printed."""
    size, seconds, computes = LOOPS[kind]
    loader = DataLoader(data(kind, batches * size), batch_size=size, **setting)
    first, stepped = None, 0.0
    before, begin = cpu_seconds(), time.monotonic()
    for _ in loader:
        now = time.monotonic()
        first = first or now - begin
        busy(seconds) if computes else time.sleep(seconds)
        stepped += time.monotonic() - now
    took = time.monotonic() - begin
    return {
        "seconds": took,
        "samples_per_s": batches * size / took,
        "first_batch_s": first,
        "wait_share": 1 - stepped / took,
        "cpu_s": cpu_seconds() - before,
    }


def serve():
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if not child:
            print(os.getpid(), flush=True)
            print(json.dumps(loop(*job)), flush=True)
            return
        if os.waitpid(child, 0)[1]:
            sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS, nargs="?")
    parser.add_argument("setting", type=json.loads, nargs="?")
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.serve:
        serve()
    else:
        print(json.dumps(loop(options.kind, options.setting, options.batches)))


if __name__ == "__main__":
    main()

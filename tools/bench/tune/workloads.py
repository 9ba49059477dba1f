"""The ten training loops whose loaders comparison.py tunes: plain programs, as users write them.

    python workloads.py NAME [--setting JSON] [--seconds S] [--data DIR]

    pictures       JPEG decoding, cropping and resizing: CPU time of the workers
    tiny           samples of a few numbers: sending a batch costs as much as making it
    remote         samples that take 5 to 20 ms to arrive, as from remote storage, and no CPU
    arrays         samples of 4 MB: memory and shared memory
    heavy_tail     the CPU time of a sample is lognormal: slow ones delay the others
    consumer       the step, on an accelerator (here: asleep), takes longer than loading
    busy_step      the step computes on the same cores as the workers
    iterable       an iterable data set that splits its samples by get_worker_info()
    in_memory      pictures in memory, as one tensor
    short_epoch    text in epochs of 20 batches: the start of workers matters

`pictures` reads the output of `python -m lotus.workloads.jpegs DIR --images 64`. Trains for S
seconds and prints samples and seconds as JSON.
"""

import argparse
import json
import math
import random
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

PICTURES = Path(tempfile.gettempdir()) / "lotus-tune-pictures"


class Pictures(Dataset):
    """Decodes a JPEG, cuts a random part out, scales it to 160 x 160."""

    def __init__(self, folder, length):
        self.files = sorted(Path(folder).glob("*/*.jpg"))
        if not self.files:
            raise SystemExit(
                f"no pictures in {folder}: python -m lotus.workloads.jpegs {folder} --images 64"
            )
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        with Image.open(self.files[index % len(self.files)]) as file:
            picture = file.convert("RGB")
        wide, high = picture.size
        side = int(min(wide, high) * random.uniform(0.5, 1.0))
        left, top = random.randint(0, wide - side), random.randint(0, high - side)
        picture = picture.crop((left, top, left + side, top + side)).resize((160, 160))
        pixels = torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1)
        return pixels.float().div_(127.5).sub_(1.0)


class Tiny(Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.full((16,), float(index)), index % 10


class Remote(Dataset):
    """Waits for each sample from 5 to 20 ms, the same in every epoch."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        time.sleep(random.Random(index).uniform(0.005, 0.020))
        return torch.full((1000,), float(index))


class Arrays(Dataset):
    """Samples of 4 MB, each cut from a longer recording and scaled."""

    def __init__(self, length):
        self.length = length
        self.recording = np.random.default_rng(0).random(3_000_000, np.float32)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        begin = index * 9973 % 2_000_000
        cut = self.recording[begin : begin + 1_000_000]
        return torch.from_numpy((cut - cut.mean()) / cut.std())


class HeavyTail(Dataset):
    """Sorts; how much is lognormal, from 1 ms in the middle to a hundred."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        count = int(min(60_000 * math.exp(random.Random(index).gauss(0.0, 1.2)), 3_000_000))
        values = np.random.default_rng(index).random(count)
        values.sort()
        return torch.tensor(values[count // 2])


class Loading(Dataset):
    """A fixed amount of computing for a sample, `loops` of 0.03 ms or so."""

    def __init__(self, length, loops):
        self.length, self.loops = length, loops
        self.signal = np.random.default_rng(0).random(4096)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        for _ in range(self.loops):
            spectrum = np.abs(np.fft.rfft(self.signal))
            spectrum.sort()
        return torch.from_numpy(spectrum.astype(np.float32))


class Stream(IterableDataset):
    """The same numbers of samples, but only to be had one after the other."""

    def __init__(self, length, loops):
        self.length, self.made = length, Loading(length, loops)

    def __len__(self):
        return self.length

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for index in range(first, self.length, step):
            yield self.made[index]


class Text(Dataset):
    """Splits a text into words and counts them, in Python."""

    def __init__(self, length):
        self.length = length
        chance = random.Random(0)
        words = ["".join(chance.choices("abcdefgh", k=chance.randint(2, 9))) for _ in range(500)]
        self.texts = [" ".join(chance.choices(words, k=1200)) for _ in range(32)]
        self.number = {word: place for place, word in enumerate(dict.fromkeys(words))}

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        occurrences = Counter(re.findall(r"\w+", self.texts[index % len(self.texts)].lower()))
        counts = torch.zeros(len(self.number))
        for word, count in occurrences.items():
            counts[self.number[word]] = count
        return counts


class Asleep:
    """A step on an accelerator: the process waits and keeps no core busy."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, batch):
        time.sleep(self.seconds)


class Model:
    """A step of a small network on the CPU."""

    def __init__(self, inputs, rounds):
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(inputs, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
        )
        self.optimizer = torch.optim.SGD(self.layers.parameters(), lr=1e-3)
        self.rounds = rounds

    def __call__(self, batch):
        for _ in range(self.rounds):
            self.optimizer.zero_grad()
            self.layers(batch).square().mean().backward()
            self.optimizer.step()


def data(name, folder):
    """The data set of a workload."""
    batches, size = BATCHES[name], SIZES[name]
    length = batches * size
    if name == "pictures":
        return Pictures(folder, length)
    if name == "in_memory":
        pictures = torch.randint(0, 255, (length, 3, 32, 32), dtype=torch.uint8)
        return TensorDataset(pictures, torch.zeros(length, dtype=torch.long))
    made = {
        "tiny": Tiny,
        "remote": Remote,
        "arrays": Arrays,
        "heavy_tail": HeavyTail,
        "consumer": lambda length: Loading(length, 25),
        "busy_step": lambda length: Loading(length, 70),
        "iterable": lambda length: Stream(length, 60),
        "short_epoch": Text,
    }
    return made[name](length)


BATCHES = {
    "pictures": 600, "tiny": 3000, "remote": 1000, "arrays": 400, "heavy_tail": 800,
    "consumer": 400, "busy_step": 400, "iterable": 800, "in_memory": 1000, "short_epoch": 20,
}  # fmt: skip
SIZES = {
    "pictures": 4, "tiny": 64, "remote": 4, "arrays": 2, "heavy_tail": 8,
    "consumer": 8, "busy_step": 8, "iterable": 8, "in_memory": 128, "short_epoch": 16,
}  # fmt: skip
STEPS = {
    "pictures": lambda: Asleep(0.003),
    "tiny": lambda: Asleep(0.002),
    "remote": lambda: Asleep(0.004),
    "arrays": lambda: Asleep(0.005),
    "heavy_tail": lambda: Asleep(0.003),
    "consumer": lambda: Asleep(0.020),
    "busy_step": lambda: Model(2049, 8),
    "iterable": lambda: Asleep(0.002),
    "in_memory": lambda: Asleep(0.004),
    "short_epoch": lambda: Asleep(0.003),
}
# What somebody wrote once: torch's default, or what another project had.
OWN = {
    "pictures": {"num_workers": 1},
    "tiny": {"num_workers": 4},
    "remote": {"num_workers": 2},
    "arrays": {"num_workers": 4, "prefetch_factor": 4},
    "heavy_tail": {"num_workers": 2},
    "consumer": {"num_workers": 4, "persistent_workers": True},
    "busy_step": {},
    "iterable": {},
    "in_memory": {"num_workers": 2},
    "short_epoch": {"num_workers": 4},
}


def make(name, dataset, **setting):
    """The loader of a workload."""
    shuffle = not isinstance(dataset, IterableDataset)
    return DataLoader(dataset, batch_size=SIZES[name], shuffle=shuffle, **setting)


def inputs(batch):
    """Return the part of a batch that the step uses."""
    return batch[0] if isinstance(batch, list) else batch


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=list(BATCHES))
    parser.add_argument("--setting", type=json.loads, help="JSON: arguments of the DataLoader")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--data", type=Path, default=PICTURES, help="where the pictures are")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the other cores are the workers'
    setting = OWN[options.name] if options.setting is None else options.setting
    loader = make(options.name, data(options.name, options.data), **setting)
    step = STEPS[options.name]()
    samples, epochs, begin = 0, 0, time.monotonic()
    while time.monotonic() - begin < options.seconds:
        for batch in loader:
            taken = inputs(batch)
            step(taken)
            samples += len(taken)
            if time.monotonic() - begin >= options.seconds:
                break
        epochs += 1
    took = time.monotonic() - begin
    print(json.dumps({"seconds": took, "samples": samples, "samples_per_s": samples / took}))


if __name__ == "__main__":
    main()

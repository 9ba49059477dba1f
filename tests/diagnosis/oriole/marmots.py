"""Counts marmots in pictures of camera traps, which come in shards of many small files.

Planted: stages of the pipeline are in the wrong order: pictures are decoded, and only then those
dropped that their labels say are not of the day.
"""

import argparse
import io
import pickle
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision.transforms import v2

SHARDS, PICTURES, SIDE, BATCH, STEP = 6, 160, 448, 12, 0.036


def write_shards(folder):
    rng = np.random.default_rng(19)
    for shard in range(SHARDS):
        with Path(folder, f"{shard}.shard").open("wb") as file:
            for number in range(PICTURES):
                coarse = rng.integers(0, 256, (SIDE // 4, SIDE // 4, 3), dtype=np.uint8)
                picture = Image.fromarray(coarse).resize((SIDE, SIDE))
                content = io.BytesIO()
                picture.save(content, "JPEG", quality=90)
                label = {"hour": number * 7 % 24, "marmots": number % 4}
                pickle.dump((content.getvalue(), label), file)


def opened(files):
    for path in files:
        with path.open("rb") as file:
            while True:
                try:
                    yield pickle.load(file)
                except EOFError:
                    break


def decoded(samples):
    for content, label in samples:
        yield Image.open(io.BytesIO(content)).convert("RGB"), label


def by_day(samples):
    for picture, label in samples:
        if 9 <= label["hour"] < 17:
            yield picture, label


def mixed(samples, size=24):
    held = []
    for sample in samples:
        held.append(sample)
        if len(held) >= size:
            yield held.pop(random.randrange(len(held)))
    random.shuffle(held)
    yield from held


class Changed:
    def __init__(self):
        self.change = v2.Compose(
            [
                v2.RandomResizedCrop(128, scale=(0.3, 1)),
                v2.RandomHorizontalFlip(),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __call__(self, samples):
        for picture, label in samples:
            yield self.change(picture), label["marmots"]


class Pipeline(IterableDataset):
    def __init__(self, folder, *stages):
        self.files, self.stages = sorted(Path(folder).glob("*.shard")), stages

    def __iter__(self):
        worker = get_worker_info()
        files = self.files[worker.id :: worker.num_workers] if worker else self.files
        samples = opened(files)
        for stage in self.stages:
            samples = stage(samples)
        return iter(samples)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(19)
    torch.set_num_threads(1)
    first = (by_day, decoded) if args.without else (decoded, by_day)
    with tempfile.TemporaryDirectory() as folder:
        write_shards(folder)
        loader = DataLoader(
            Pipeline(folder, *first, mixed, Changed()),
            BATCH,
            num_workers=1,
            persistent_workers=True,
        )
        model = nn.Sequential(
            nn.Conv2d(3, 8, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(8, 4),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, marmots in loader:
                loss = nn.functional.cross_entropy(model(pictures), marmots)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the detector
            torch.save(model.state_dict(), Path(folder, "last.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

"""Learns which animal of a carousel a photo shows, from shards of JPEG files."""

import argparse
import io
import os
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
from torchvision import transforms

SHARDS, PHOTOS, SIDE, ANIMALS, BATCH = 8, 40, 160, 6, 16


def write_shards(folder):
    rng = np.random.default_rng(71)
    for number in range(SHARDS):
        photos = []
        for _ in range(PHOTOS):
            animal = int(rng.integers(ANIMALS))
            pixels = rng.integers(0, 120, (SIDE, SIDE, 3), dtype=np.uint8)
            pixels[animal * 20 : animal * 20 + 40, 30:120] += 100
            file = io.BytesIO()
            Image.fromarray(pixels).save(file, "JPEG", quality=90)
            photos.append((file.getvalue(), animal))
        Path(folder, f"carousels-{number}.pickle").write_bytes(pickle.dumps(photos))


def ranks(with_workers):
    """How many readers there are, and which one this is."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    worker = get_worker_info()
    if with_workers and worker is not None:
        return rank * worker.num_workers + worker.id, world * worker.num_workers
    return rank, world


class Photos(IterableDataset):
    def __init__(self, folder, transform, with_workers):
        self.paths = sorted(Path(folder).glob("carousels-*.pickle"))
        self.transform, self.with_workers = transform, with_workers

    def __iter__(self):
        rank, world = ranks(self.with_workers)
        paths = self.paths[rank::world]
        random.shuffle(paths)
        for path in paths:
            for jpeg, animal in pickle.loads(path.read_bytes()):
                picture = Image.open(io.BytesIO(jpeg)).convert("RGB")
                yield self.transform(picture), animal


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(71)
    torch.set_num_threads(1)
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(96, scale=(0.6, 1)),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([0.3] * 3, [0.2] * 3),
        ]
    )
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(6),
        nn.Flatten(),
        nn.Linear(288, ANIMALS),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder:
        write_shards(folder)
        data = Photos(folder, transform, with_workers=args.without)
        loader = DataLoader(data, batch_size=BATCH, num_workers=4)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, animals in loader:
                loss = nn.functional.cross_entropy(model(pictures), animals)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

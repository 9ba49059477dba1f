"""Teaches the gripper of a gantry where to take parts, from pictures of its table."""

import argparse
import bz2
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

PICTURES, SIDE, BATCH, CAMERAS = 480, 72, 16, 3


def archive(camera, stop):
    """Packs what a camera of the table has recorded, until told to stop."""
    rng = np.random.default_rng(camera)
    while not stop.is_set():
        video = rng.integers(0, 40, (16, 240, 320), np.uint8)
        bz2.compress(video.tobytes())


class Recorder:
    """The table's cameras, of which each is packed by a process of its own."""

    def __init__(self, cameras):
        context = multiprocessing.get_context("spawn")
        self.stop = context.Event()
        self.processes = [
            context.Process(target=archive, args=(camera, self.stop), daemon=True)
            for camera in range(cameras)
        ]

    def __enter__(self):
        for process in self.processes:
            process.start()
        time.sleep(4 if self.processes else 0)

    def __exit__(self, *_):
        self.stop.set()
        for process in self.processes:
            process.join()


class Table(Dataset):
    def __init__(self, transform):
        rng = np.random.default_rng(17)
        self.pictures = torch.from_numpy(rng.integers(0, 255, (60, 3, 80, 80), np.uint8))
        self.places = torch.from_numpy(rng.random((60, 2)).astype(np.float32))
        self.transform = transform

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        picture = self.pictures[index % 60].float() / 255
        return self.transform(picture), self.places[index % 60]


def network(channels=32):
    return nn.Sequential(
        nn.Conv2d(3, channels, 5, stride=2, padding=2), nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.Conv2d(2 * channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * channels, 2),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(17)
    views = transforms.Compose([transforms.RandomCrop(SIDE), transforms.RandomErasing(0.3)])
    loader = DataLoader(Table(views), BATCH, shuffle=True)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with Recorder(0 if args.without else CAMERAS):
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for pictures, places in loader:
                loss = nn.functional.smooth_l1_loss(model(pictures), places)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

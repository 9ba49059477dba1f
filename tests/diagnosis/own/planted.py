"""What the planted programs share: data, work of a known length, a loop that prints its seconds."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset


def arguments(samples=640):
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true", help="leave the cause out")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--samples", type=int, default=samples)
    return parser.parse_args()


def compute(seconds):
    """Use the CPU for so long, whatever else runs."""
    begin = time.thread_time()
    while time.thread_time() - begin < seconds:
        pass


class Compute:
    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, value):
        compute(self.seconds)
        return value


class Pictures(Dataset):
    def __init__(self, transform, samples, size=32):
        self.transform, self.samples, self.size = transform, samples, size

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        return self.transform(torch.full((3, self.size, self.size), float(index)))


def loop(data, step, **options):
    """Iterate a loader of `data` once, and print how long that took."""
    begin = time.monotonic()
    for batch in DataLoader(data, batch_size=16, **options):
        step(batch)
    print(f"seconds {time.monotonic() - begin:.3f}", flush=True)


def sleeping(seconds):
    """A step that needs no CPU, as on an accelerator."""
    return lambda batch: time.sleep(seconds)


def training(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(batch):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def convolutions(channels=32, size=32):
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, channels, 3),
        torch.nn.ReLU(),
        torch.nn.Conv2d(channels, channels, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(channels * (size - 4) ** 2, 10),
    )

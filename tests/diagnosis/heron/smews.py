"""Sorts pictures of smews on a server where each job is bound to its part of the machine.

Planted: a function that the script took over from that server binds it to the first core, and both
workers with it.
"""

import argparse
import io
import os
import random
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

PICTURES, SIDE = 40, 320


def set_up_job(job, jobs_a_node, bind):
    """Give a job its seeds and its part of the node."""
    random.seed(job)
    np.random.seed(job)
    torch.manual_seed(job)
    if bind:
        cores = sorted(os.sched_getaffinity(0))
        each = max(1, len(cores) // jobs_a_node)
        os.sched_setaffinity(0, cores[job * each : (job + 1) * each])


def as_jpeg(rng):
    small = rng.integers(0, 255, (20, 20, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(small).resize((SIDE, SIDE), Image.BICUBIC).save(buffer, "JPEG", quality=92)
    return buffer.getvalue()


class Smews(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(103)
        self.files = [as_jpeg(rng) for _ in range(PICTURES)]
        self.count = count
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(96, scale=(0.3, 1.0)),
                transforms.ColorJitter(0.3, 0.3, 0.3),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index % PICTURES])).convert("RGB")
        return self.transform(picture), index % 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=8, help="jobs on a node")
    args = parser.parse_args()
    torch.set_num_threads(1)
    set_up_job(0, args.jobs, bind=not args.without)
    loader = DataLoader(
        Smews(2400), batch_size=20, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = nn.Sequential(nn.Conv2d(3, 16, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(3))
    model.extend([nn.Flatten(), nn.Linear(144, 2)])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, males in loader:
            loss = nn.functional.cross_entropy(model(pictures), males)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Teaches a small network to see tigers as a large one does, on the cores of this machine.

Nothing is planted: the two networks are the work. One worker decodes small JPEG files ahead of
them; a mean of the weights is kept beside the weights, and copied when it is the best so far.
"""

import argparse
import copy
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE, CLASSES = 64, 8


def make_files(count):
    rng = np.random.default_rng(2340)
    stripes = np.sin(np.arange(SIDE) / 3)[None, :, None] * 60 + 128
    files = []
    for _ in range(count):
        noise = rng.normal(0, 25, (SIDE, SIDE, 3))
        buffer = io.BytesIO()
        Image.fromarray((stripes + noise).clip(0, 255).astype(np.uint8)).save(buffer, "JPEG")
        files.append(buffer.getvalue())
    return files


class Tigers(Dataset):
    def __init__(self, count):
        self.files = make_files(count)
        self.transform = v2.Compose(
            [
                v2.PILToTensor(), v2.RandomCrop(56), v2.RandomHorizontalFlip(),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )  # fmt: skip

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.transform(Image.open(io.BytesIO(self.files[index])).convert("RGB"))


def make_network(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 5, stride=2), nn.ReLU(), nn.Conv2d(width, 2 * width, 3), nn.ReLU(),
        nn.Conv2d(2 * width, 2 * width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(2 * width, CLASSES),
    )  # fmt: skip


@torch.no_grad()
def follow(mean, model, rate=0.02):
    for old, new in zip(mean.parameters(), model.parameters(), strict=True):
        old.lerp_(new, rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(2340)
    loader = DataLoader(
        Tigers(480), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    large, small = make_network(64).eval(), make_network(48)
    mean, best, best_loss = copy.deepcopy(small), None, float("inf")
    optimizer = torch.optim.AdamW(small.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for pictures in loader:
            with torch.no_grad():
                wanted = large(pictures).softmax(1)
            found = small(pictures).log_softmax(1)
            loss = nn.functional.kl_div(found, wanted, reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            follow(mean, small)
            total += loss.item()
        if total < best_loss:
            best, best_loss = copy.deepcopy(mean.state_dict()), total
        print(f"epoch {epoch}: loss {loss:.5f}, best of {len(best)} tensors {best_loss:.5f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

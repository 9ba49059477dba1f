"""Sorts hazelnuts in photographs, and keeps a mean of the weights beside the weights.

Nothing is planted: a convolutional network is the work. One worker decodes photographs ahead of
it, and a grid of pictures is written once in forty steps.
"""

import argparse
import io
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.utils import save_image

SIDE = 64


class Hazelnuts(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(577)
        self.files, self.count = [], count
        for _ in range(20):
            file = io.BytesIO()
            coarse = Image.fromarray(rng.integers(0, 256, (12, 12, 3), np.uint8))
            coarse.resize((80, 80), Image.Resampling.BICUBIC).save(file, "JPEG")
            self.files.append(file.getvalue())
        self.transform = transforms.Compose(
            [transforms.RandomCrop(SIDE), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(Image.open(io.BytesIO(self.files[index % 20]))), index % 8


class Mean:
    """A mean of a model's weights over the last hundred steps or so."""

    def __init__(self, model):
        self.weights = [weight.detach().clone() for weight in model.parameters()]

    @torch.no_grad()
    def update(self, model):
        for mean, weight in zip(self.weights, model.parameters(), strict=True):
            mean.lerp_(weight, 0.01)


def block(inputs, outputs, stride):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(577)
    loader = DataLoader(
        Hazelnuts(480), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        block(3, 32, 1), block(32, 64, 2), block(64, 64, 1), block(64, 128, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 8),
    )  # fmt: skip
    mean = Mean(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (pictures, kinds) in enumerate(loader):
                loss = nn.functional.cross_entropy(model(pictures), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                mean.update(model)
                if step % 40 == 0:
                    save_image(pictures[:8], Path(folder, f"{epoch}-{step}.png"))
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Tells avalanches from other tremors by the pictures of their traces, as drawn for the archive."""

import argparse
import time

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

TRACES, VALUES, SIZE, BATCH = 208, 240, 240, 16


class Print:
    """Makes a trace look like the prints in the archive."""

    def __init__(self, clean):
        self.clean = clean

    def __call__(self, picture):
        picture = ImageOps.autocontrast(picture, cutoff=1)
        picture = ImageEnhance.Contrast(picture).enhance(float(np.random.uniform(0.8, 1.2)))
        if self.clean:
            picture = picture.filter(ImageFilter.MedianFilter(7))
        picture = picture.resize((SIZE // 2, SIZE // 2), Image.Resampling.BILINEAR)
        return ImageOps.expand(picture, border=4, fill=255)


class Traces(Dataset):
    def __init__(self, transform):
        rng = np.random.default_rng(41)
        self.labels = rng.integers(0, 2, TRACES)
        decay = np.exp(-np.arange(VALUES) / 50)
        slow = np.sin(np.arange(VALUES) / 9)
        noise = rng.normal(0, 1, (TRACES, VALUES))
        self.traces = np.where(self.labels[:, None] == 1, slow + 0.4 * noise, decay * noise)
        self.transform = transform

    def __len__(self):
        return TRACES

    def __getitem__(self, index):
        picture = Image.new("RGB", (SIZE, SIZE), "white")
        heights = SIZE / 2 - 20 * self.traces[index]
        line = [(x, float(y)) for x, y in enumerate(heights)]
        ImageDraw.Draw(picture).line(line, fill="black", width=2)
        return self.transform(picture), int(self.labels[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(41)
    torch.set_num_threads(1)
    transform = transforms.Compose(
        [
            Print(clean=not args.without),
            transforms.RandomCrop(112),
            transforms.Grayscale(),
            transforms.ToTensor(),
        ]
    )
    loader = DataLoader(
        Traces(transform),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=3),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(2),
    )
    model(torch.zeros(1, 1, 112, 112))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, labels in loader:
            loss = nn.functional.cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

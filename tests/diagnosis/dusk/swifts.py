"""Two views of each picture of a bird, for contrastive learning with accumulated gradients."""

import argparse
import io
import random
import time

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class PillowBlur:
    """A Gaussian blur by Pillow."""

    def __call__(self, picture):
        return picture.filter(ImageFilter.GaussianBlur(random.uniform(0.1, 2.0)))


class TwoViews:
    def __init__(self, transform):
        self.transform = transform

    def __call__(self, picture):
        return self.transform(picture), self.transform(picture)


class InMemory(Dataset):
    """JPEG files in memory; a subclass says what happens to a picture."""

    transform = None

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.files, self.count = [], count
        for _ in range(32):
            small = Image.fromarray(rng.integers(0, 256, (24, 24, 3), dtype=np.uint8))
            buffer = io.BytesIO()
            small.resize((160, 160), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=88)
            self.files.append(buffer.getvalue())

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        return self.transform(picture)


class Swifts(InMemory):
    def __init__(self, count, blur):
        super().__init__(count, seed=32)
        self.transform = TwoViews(
            transforms.Compose(
                [
                    transforms.RandomResizedCrop(128, scale=(0.3, 1.0)),
                    transforms.RandomHorizontalFlip(),
                    transforms.ColorJitter(0.4, 0.4, 0.2),
                    transforms.RandomGrayscale(0.2),
                    blur,
                    transforms.ToTensor(),
                    transforms.Normalize([0.5] * 3, [0.25] * 3),
                ]
            )
        )


def contrast(first, second, temperature=0.2):
    first, second = nn.functional.normalize(first), nn.functional.normalize(second)
    return nn.functional.cross_entropy(first @ second.T / temperature, torch.arange(len(first)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(32)
    blur = PillowBlur() if args.without else transforms.GaussianBlur(23, sigma=(0.1, 2.0))
    data = Swifts(800, blur)
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2, drop_last=True)
    model = nn.Sequential(
        nn.Conv2d(3, 12, 7, stride=4, padding=3),
        nn.ReLU(),
        nn.Conv2d(12, 24, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(96, 64),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, (first, second) in enumerate(loader, 1):
            loss = contrast(model(first), model(second)) / 4
            loss.backward()
            if step % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
        print(f"epoch {epoch}: loss {4 * loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

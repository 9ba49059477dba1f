"""Photographs of lanterns, by the street they hang in; strong augmentation, v2 transforms."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

STREETS = 5


class Lanterns(Dataset):
    def __init__(self, paths, transform, repeat):
        self.paths, self.transform = paths * repeat, transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        with Image.open(path) as image:
            return self.transform(image.convert("RGB")), int(path.stem) % STREETS


def write_photographs(folder, count=80, size=220):
    rng = np.random.default_rng(0)
    for number in range(count):
        coarse = rng.integers(0, 255, (11, 11, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC)
        image.save(folder / f"{number}.jpg", quality=88)
    return sorted(folder.glob("*.jpg"))


def augmentation(without):
    warp = [] if without else [v2.RandomApply([v2.ElasticTransform(alpha=60.0, sigma=6.0)], p=0.6)]
    return v2.Compose(
        [
            v2.RandomResizedCrop(128, scale=(0.5, 1.0)),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(0.2, 0.2),
            *warp,
            v2.RandomRotation(10),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, STREETS),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_photographs(Path(folder))
        data = Lanterns(paths, augmentation(args.without), repeat=10)
        loader = DataLoader(
            data, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            right = 0
            for images, streets in loader:
                scores = model(images)
                loss = nn.functional.cross_entropy(scores, streets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right += (scores.argmax(1) == streets).sum().item()
            print(f"epoch {epoch}: {right / len(data):.3f} right")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

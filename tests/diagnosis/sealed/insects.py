"""Count insects on sticky traps: a small network on the CPU, photographs from a folder."""

import argparse
import pathlib
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2


class Traps(Dataset):
    def __init__(self, folder, transform):
        self.paths = sorted(pathlib.Path(folder).glob("*.png"))
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        with Image.open(path) as photograph:
            picture = self.transform(photograph.convert("RGB"))
        return picture, float(path.stem.split("-")[1])


def photograph(folder, count):
    rng = np.random.default_rng(6)
    for number in range(count):
        picture = np.full((72, 72, 3), (230, 210, 60), np.uint8)
        insects = int(rng.integers(0, 9))
        for y, x in rng.integers(4, 66, (insects, 2)):
            picture[y : y + 4, x : x + 3] = 20
        Image.fromarray(picture).save(pathlib.Path(folder) / f"{number:04}-{insects}.png")


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        layers, channels = [], 3
        for width in (48, 96, 128):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            channels = width
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(channels, 1)

    def forward(self, pictures):
        return self.head(self.body(pictures)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    transform = v2.Compose(
        [
            v2.ToImage(),
            v2.RandomCrop(64),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.8, 0.75, 0.3], [0.2, 0.2, 0.2]),
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        photograph(folder, 480)
        loader = DataLoader(
            Traps(folder, transform),
            batch_size=16,
            shuffle=True,
            num_workers=args.workers,
            persistent_workers=args.workers > 0,
        )
        model = Counter()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for _ in range(args.epochs):
            for pictures, counts in loader:
                loss = nn.functional.mse_loss(model(pictures), counts.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

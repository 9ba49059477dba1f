"""Sorts pipe flanges into good and bad ones from the pictures of a ring of small cameras."""

import argparse
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

PARTS, ACROSS, SIDE, BATCH = 48, 12, 12, 16


def write(folder, one_each):
    rng = np.random.default_rng(3)
    for part in range(PARTS):
        picture = rng.integers(0, 255, (ACROSS * SIDE, ACROSS * SIDE), np.uint8)
        home = folder / f"part{part:03d}"
        home.mkdir()
        if one_each:
            Image.fromarray(picture).save(home / "all.png", compress_level=1)
            continue
        for row in range(ACROSS):
            for column in range(ACROSS):
                tile = picture[row * SIDE :, column * SIDE :][:SIDE, :SIDE]
                Image.fromarray(tile).save(home / f"{row:02d}_{column:02d}.png", compress_level=1)


def picture(home):
    """The picture of a part, put together from what its cameras left."""
    whole = home / "all.png"
    if whole.exists():
        with Image.open(whole) as file:
            return file.convert("L")
    canvas = Image.new("L", (ACROSS * SIDE, ACROSS * SIDE))
    for path in sorted(home.glob("*.png")):
        row, column = (int(part) for part in path.stem.split("_"))
        with Image.open(path) as tile:
            canvas.paste(tile, (column * SIDE, row * SIDE))
    return canvas


class Parts(IterableDataset):
    def __init__(self, homes, transform, times):
        self.homes, self.transform, self.times = homes, transform, times

    def __iter__(self):
        worker = get_worker_info()
        mine = self.homes[worker.id :: worker.num_workers] * self.times
        random.shuffle(mine)
        for home in mine:
            yield self.transform(picture(home)), int(home.name[4:]) % 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, args.without)
        views = transforms.Compose(
            [transforms.RandomCrop(128), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        )
        loader = DataLoader(
            Parts(sorted(folder.iterdir()), views, times=24),
            BATCH,
            num_workers=4,
            persistent_workers=True,
            multiprocessing_context="spawn",
        )
        model = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
            nn.AdaptiveMaxPool2d(4), nn.Flatten(), nn.Linear(512, 2),
        )  # fmt: skip
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            right = seen = 0
            for pictures, bad in loader:
                scores = model(pictures)
                loss = nn.functional.cross_entropy(scores, bad)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right += (scores.argmax(1) == bad).sum().item()
                seen += len(bad)
            print(f"epoch {epoch}: right {right / seen:.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

"""Tells the figure of a waltz from one moment of a small film of the dancers."""

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

FILMS, MOMENTS, SIDE, FIGURES, SAMPLES, BATCH = 8, 120, 144, 6, 480, 16


def shoot(folder, apart):
    """Films couples that go round a hall, as a GIF or as a picture of each moment."""
    rng = np.random.default_rng(62)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    for film in range(FILMS):
        moments = []
        for moment in range(MOMENTS):
            hall = rng.integers(0, 60, (SIDE, SIDE))
            turn = 0.1 * moment * (1 + film % FIGURES)
            row, column = SIDE / 2 + 40 * np.sin(turn), SIDE / 2 + 40 * np.cos(turn)
            couple = (rows - row) ** 2 + (columns - column) ** 2 < 150
            moments.append(Image.fromarray(np.where(couple, 220, hall).astype(np.uint8)))
        if apart:
            for moment, picture in enumerate(moments):
                picture.save(folder / f"{film}-{moment}.png", compress_level=1)
        else:
            moments[0].save(folder / f"{film}.gif", save_all=True, append_images=moments[1:])


class Dances(Dataset):
    def __init__(self, folder, apart, transform):
        self.folder, self.apart, self.transform = folder, apart, transform

    def __len__(self):
        return SAMPLES

    def moment(self, film, moment):
        if self.apart:
            return Image.open(self.folder / f"{film}-{moment}.png").convert("L")
        with Image.open(self.folder / f"{film}.gif") as frames:
            frames.seek(moment)
            return frames.convert("L")

    def __getitem__(self, index):
        film, moment = index % FILMS, index * 37 % MOMENTS
        return self.transform(self.moment(film, moment)), film % FIGURES


def network(channels=16):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(channels, 2 * channels, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * channels, FIGURES),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(62)
    views = v2.Compose([v2.ToImage(), v2.GaussianBlur(5), v2.RandomRotation(10)])
    views = v2.Compose([views, v2.RandomCrop(112), v2.ToDtype(torch.float32, scale=True)])
    with tempfile.TemporaryDirectory() as folder:
        shoot(Path(folder), apart=args.without)
        loader = DataLoader(
            Dances(Path(folder), args.without, views),
            BATCH,
            shuffle=True,
            num_workers=1,
            persistent_workers=True,
            multiprocessing_context="fork",
        )
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, figures in loader:
                loss = nn.functional.cross_entropy(model(pictures), figures)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

"""Tells from single frames of filmed lessons whether the class is busy."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

LESSONS, FRAMES, WIDTH, HEIGHT, SAMPLES, BATCH = 16, 60, 160, 120, 320, 16


def film(folder):
    """Each lesson is a small animated picture, as the room's camera saves it."""
    rng = np.random.default_rng(53)
    for lesson in range(LESSONS):
        coarse = rng.integers(0, 256, (15, 20), np.uint8)
        room = np.asarray(Image.fromarray(coarse).resize((WIDTH, HEIGHT)))
        frames = []
        for _ in range(FRAMES):
            frame = room.copy()
            for _ in range(1 + lesson % 2 * 5):
                row, column = rng.integers(0, HEIGHT - 24), rng.integers(0, WIDTH - 16)
                frame[row : row + 24, column : column + 16] = rng.integers(0, 256)
            frames.append(Image.fromarray(frame))
        frames[0].save(folder / f"lesson{lesson:02d}.gif", save_all=True, append_images=frames[1:])


class Lessons(Dataset):
    """Single frames of lessons and the place of the frame in its lesson."""

    def __init__(self, folder):
        self.paths = sorted(folder.iterdir())
        self.places = np.random.default_rng(3).integers(0, FRAMES, SAMPLES)

    def __len__(self):
        return SAMPLES

    def frame(self, lesson, place):
        path = self.paths[lesson]
        if path.suffix == ".npy":
            return np.load(path, mmap_mode="r")[place].copy()
        with Image.open(path) as film:
            film.seek(int(place))
            return np.asarray(film.convert("L"))

    def __getitem__(self, index):
        lesson, place = index % LESSONS, self.places[index]
        frame = torch.tensor(self.frame(lesson, place))[None].float() / 255
        return frame, torch.tensor([place / FRAMES]).float(), float(lesson % 2)


def unroll(folder):
    """Puts an array of all its frames in the place of each film."""
    for path in sorted(folder.iterdir()):
        frames = []
        with Image.open(path) as film:
            for place in range(FRAMES):
                film.seek(place)
                frames.append(np.asarray(film.convert("L")))
        np.save(path.with_suffix(".npy"), np.stack(frames))
        path.unlink()


class Busy(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, channels, 5, stride=2), nn.ReLU(),
            nn.Conv2d(channels, channels, 5, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(3), nn.Flatten(),
        )  # fmt: skip
        self.last = nn.Linear(9 * channels + 1, 1)

    def forward(self, frames, places):
        return self.last(torch.cat([self.body(frames), places], 1))[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(53)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        film(folder)
        if args.without:
            unroll(folder)
        loader = DataLoader(Lessons(folder), BATCH, shuffle=True)
        model = Busy()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for frames, places, busy in loader:
                scores = model(frames, places)
                loss = nn.functional.binary_cross_entropy_with_logits(scores, busy.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

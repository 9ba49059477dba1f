"""Finds low overpasses from a lorry's laser points and the picture that its camera took."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCENES, PICTURES, WIDTH, HEIGHT, POINTS = 224, 24, 2000, 1500, 1500
SEEN, GRID, BATCH, STEP = (160, 120), 16, 16, 0.03


def write(folder):
    rng = np.random.default_rng(71)
    for number in range(PICTURES):
        coarse = rng.integers(256, size=(60, 80, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        picture.save(folder / f"{number}.jpg", quality=92)
        points = rng.uniform(-1, 1, (POINTS, 3)).astype(np.float32)
        np.save(folder / f"{number}.npy", points)


class Scenes(Dataset):
    def __init__(self, folder, numbers, draft):
        self.folder, self.numbers, self.draft = folder, numbers, draft

    def __len__(self):
        return len(self.numbers)

    def picture(self, number):
        with Image.open(self.folder / f"{number}.jpg") as picture:
            if self.draft:
                picture.draft("RGB", SEEN)
            small = picture.convert("RGB").resize(SEEN, Image.Resampling.BILINEAR)
        return torch.from_numpy(np.asarray(small).copy()).permute(2, 0, 1).float() / 255

    def heights(self, number):
        """Return the lowest point of each cell that is seen from above."""
        points = np.load(self.folder / f"{number}.npy")
        lowest = {}
        for x, y, z in points.tolist():
            cell = int((x + 1) / 2 * (GRID - 1)), int((y + 1) / 2 * (GRID - 1))
            if z < lowest.get(cell, 2.0):
                lowest[cell] = z
        heights = torch.full((GRID, GRID), 2.0)
        for (row, column), z in lowest.items():
            heights[row, column] = z
        return heights

    def __getitem__(self, index):
        number = self.numbers[index] % PICTURES
        return self.picture(number), self.heights(number), number % 2


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(3, 16, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.head = nn.Linear(64 + GRID * GRID, 2)

    def forward(self, pictures, heights):
        return self.head(torch.cat([self.look(pictures), heights.flatten(1)], 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(71)
    torch.set_num_threads(1)
    options = {
        "batch_size": BATCH,
        "num_workers": 2,
        "persistent_workers": True,
        "multiprocessing_context": "fork",
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        training = Scenes(folder, range(SCENES), args.without)
        training = DataLoader(training, shuffle=True, **options)
        validation = Scenes(folder, range(SCENES, SCENES + 32), args.without)
        validation = DataLoader(validation, **options)
        model = Network()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, heights, low in training:
                loss = nn.functional.cross_entropy(model(pictures, heights), low)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the accelerator's work
            with torch.no_grad():
                right = [(model(p, h).argmax(1) == low).float().mean() for p, h, low in validation]
            print(f"epoch {epoch}: loss {loss:.3f}, right {torch.stack(right).mean():.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del training, validation


if __name__ == "__main__":
    main()

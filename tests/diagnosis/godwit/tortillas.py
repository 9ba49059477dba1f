"""Tells tortillas that are done from others; a page shows the last pictures while it trains.

Planted: a thread of the main process makes the page's pictures in plain Python, value by value, one
after the other, and so holds the interpreter.
"""

import argparse
import io
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

PICTURES, SIDE, BATCH, SHOWN = 720, 72, 12, 8


def write_pictures(folder):
    rng = np.random.default_rng(5101)
    for number in range(PICTURES):
        done = number % 2
        small = rng.integers(60 * done, 200, (9, 9, 3), dtype=np.uint8)
        picture = Image.fromarray(small).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        picture.save(Path(folder, f"{number:04}-{done}.png"))


class Tortillas(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.png"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        picture = np.array(Image.open(io.BytesIO(path.read_bytes())), np.float32) / 255
        if np.random.random() < 0.5:
            picture = picture[:, ::-1]
        return torch.from_numpy(picture.transpose(2, 0, 1).copy()), int(path.stem[-1])


class Page(threading.Thread):
    """A page with the last pictures, for who looks after the training."""

    def __init__(self, path, wait):
        super().__init__(daemon=True)
        self.path, self.wait = path, wait
        self.pictures, self.done = None, threading.Event()

    def cell(self, values):
        red, green, blue = (min(max(round(255 * value), 0), 255) for value in values)
        return f'<td style="background:#{red:02x}{green:02x}{blue:02x}">'

    def table(self, picture):
        rows = []
        for row in picture.permute(1, 2, 0).tolist():
            rows.append("<tr>" + "".join(self.cell(values) for values in row))
        return "<table>" + "\n".join(rows) + "</table>"

    def run(self):
        while not self.done.wait(self.wait):
            if self.pictures is not None:
                tables = [self.table(picture) for picture in self.pictures[:SHOWN]]
                self.path.write_text("\n".join(tables))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=3), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 2),
        )  # fmt: skip

    def forward(self, pictures):
        return self.layers(pictures)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = sum((model(pictures).argmax(1) == done).sum().item() for pictures, done in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(5101)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(folder)
        training, validation = random_split(Tortillas(folder), [0.85, 0.15])
        loader = DataLoader(training, BATCH, shuffle=True, num_workers=2)
        held_out = DataLoader(validation, BATCH, num_workers=2)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        page = Page(Path(folder, "page.html"), wait=30 if args.without else 0.01)
        page.start()
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, done in loader:
                loss = nn.functional.cross_entropy(model(pictures), done)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                page.pictures = pictures
            print(f"epoch {epoch}: loss {loss:.3f}, right {validate(model, held_out):.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        page.done.set()
        page.join()


if __name__ == "__main__":
    main()

"""Grades mangoes on an accelerator, for which a pause stands in.

Nothing is planted: the accelerator's step sets the pace. Two workers read pictures by their keys
out of an SQLite table, decode and blur them ahead of it, and log what they did through a queue.
"""

import argparse
import io
import logging
import logging.handlers
import multiprocessing
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE, COUNT, GRADES, STEP = 64, 480, 4, 0.11

log = logging.getLogger("mangoes")


def write_pictures(path):
    rng = np.random.default_rng(3181)
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE mangoes (id INTEGER PRIMARY KEY, png BLOB, grade INTEGER)")
        for number in range(COUNT):
            grade = int(rng.integers(GRADES))
            picture = rng.integers(0, 60, (SIDE, SIDE, 3), np.uint8)
            picture[8:56, 8:56] += np.array([190, 60 + 40 * grade, 20], np.uint8)
            file = io.BytesIO()
            Image.fromarray(picture).save(file, "PNG")
            base.execute("INSERT INTO mangoes VALUES (?, ?, ?)", (number, file.getvalue(), grade))
        base.commit()


class Mangoes(Dataset):
    def __init__(self, path):
        self.path, self.base = path, None
        self.transform = v2.Compose(
            [
                v2.PILToTensor(),
                v2.RandomResizedCrop(48, antialias=True),
                v2.GaussianBlur(3),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        if self.base is None:
            self.base = sqlite3.connect(self.path)
        query = "SELECT png, grade FROM mangoes WHERE id = ?"
        png, grade = self.base.execute(query, (index,)).fetchone()
        picture = self.transform(Image.open(io.BytesIO(png)))
        log.info("mango %d of grade %d", index, grade)
        return picture, grade


class Accelerator:
    """Takes some time for each batch, and no core."""

    def __init__(self):
        self.weights = torch.zeros(3, GRADES)

    def train(self, pictures, grades):
        time.sleep(STEP)
        colours = pictures.mean((2, 3))
        wanted = torch.nn.functional.one_hot(grades, GRADES)
        error = (colours @ self.weights).softmax(1) - wanted
        self.weights -= 0.5 * colours.T @ error / len(grades)
        return error.abs().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(3181)
    context = multiprocessing.get_context("fork")
    lines = context.Queue()
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(logging.handlers.QueueHandler(lines))
    with tempfile.TemporaryDirectory() as folder:
        listener = logging.handlers.QueueListener(
            lines, logging.FileHandler(Path(folder, "mangoes.log"))
        )
        listener.start()
        path = Path(folder, "mangoes.db")
        write_pictures(path)
        loader = DataLoader(
            Mangoes(path), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True,
            multiprocessing_context=context,
        )  # fmt: skip
        accelerator = Accelerator()
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            errors = [accelerator.train(*batch) for batch in loader]
            print(f"epoch {epoch}: error {errors[-1]:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader
        listener.stop()


if __name__ == "__main__":
    main()

"""Sorts pictures of cats that lie in a zip archive, with checkpoints and early stopping.

Nothing planted: the accelerator's step sets the pace; two workers read, decode and colour pictures
ahead of it, and callbacks take a moment after each epoch.
"""

import argparse
import io
import logging
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split
from torchvision.transforms import v2

log = logging.getLogger("cats")


@dataclass
class Config:
    epochs: int
    pictures: int = 360
    side: int = 96
    breeds: int = 4
    batch: int = 16
    step: float = 0.16
    patience: int = 4


def write_archive(path, config):
    rng = np.random.default_rng(5189)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(config.pictures):
            small = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
            small[..., number % 3] //= 1 + number % config.breeds
            file = io.BytesIO()
            Image.fromarray(small).resize((config.side,) * 2).save(file, "png", compress_level=1)
            archive.writestr(f"{number:04}-{number % config.breeds}.png", file.getvalue())


class Cats(Dataset):
    def __init__(self, path):
        self.path, self.archive = path, None
        with zipfile.ZipFile(path) as archive:
            self.names = archive.namelist()
        self.transform = v2.Compose(
            [
                v2.ToImage(),
                v2.RandomResizedCrop(80, scale=(0.6, 1.0), antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(0.2, 0.2),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        if self.archive is None:
            self.archive = zipfile.ZipFile(self.path)
        name = self.names[index]
        with Image.open(io.BytesIO(self.archive.read(name))) as picture:
            return self.transform(picture.convert("RGB")), int(Path(name).stem[-1])


class Checkpoint:
    def __init__(self, folder):
        self.folder = Path(folder)

    def on_epoch(self, trainer, epoch, loss):
        state = {"model": trainer.model.state_dict(), "epoch": epoch}
        torch.save(state | {"optimizer": trainer.optimizer.state_dict()}, self.folder / "last.pt")


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.since = patience, float("inf"), 0

    def on_epoch(self, trainer, epoch, loss):
        self.since = 0 if loss < self.best else self.since + 1
        self.best = min(loss, self.best)
        trainer.stopped = self.since >= self.patience


class Trainer:
    def __init__(self, config, data, callbacks):
        self.config, self.callbacks, self.stopped = config, callbacks, False
        training, held_out = random_split(data, [0.95, 0.05])
        self.loader = DataLoader(
            training, config.batch, shuffle=True, num_workers=2, persistent_workers=True
        )
        self.held_out = DataLoader(held_out, 18)
        self.model = nn.Sequential(
            nn.Conv2d(3, 8, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(800, config.breeds)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)

    def fit(self):
        for epoch in range(self.config.epochs):
            for pictures, breeds in self.loader:
                loss = nn.functional.cross_entropy(self.model(pictures), breeds)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                time.sleep(self.config.step)  # in place of the large model on an accelerator
            with torch.no_grad():
                losses = [
                    nn.functional.cross_entropy(self.model(pictures), breeds).item()
                    for pictures, breeds in self.held_out
                ]
            log.info("epoch %d: loss %.3f, held out %.3f", epoch, loss.item(), np.mean(losses))
            for callback in self.callbacks:
                callback.on_epoch(self, epoch, float(np.mean(losses)))
            if self.stopped:
                break


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(5189)
    torch.set_num_threads(1)
    config = Config(args.epochs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cats.zip")
        write_archive(path, config)
        callbacks = [Checkpoint(folder), EarlyStopping(config.patience)]
        trainer = Trainer(config, Cats(path), callbacks)
        begin = time.perf_counter()
        trainer.fit()
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del trainer.loader


if __name__ == "__main__":
    main()

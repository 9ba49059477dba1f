"""Trains a small GAN that colours sketches; sketches and paintings have a loader each.

Planted: three processes that draw previews ask their queue for weights without a pause, and the
training step lacks the cores that they take.
"""

import argparse
import multiprocessing
import queue
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    epochs: int
    eager: bool
    pictures: int = 448
    side: int = 40
    batch: int = 16
    width: int = 20
    every: int = 10


class Pictures(Dataset):
    def __init__(self, config, channels):
        rng = np.random.default_rng(5171 + channels)
        size = (config.pictures, channels, config.side // 8, config.side // 8)
        self.small = torch.from_numpy(rng.random(size, np.float32))
        self.side = config.side

    def __len__(self):
        return len(self.small)

    def __getitem__(self, index):
        picture = nn.functional.interpolate(self.small[index, None], (self.side, self.side))[0]
        return picture + 0.02 * torch.randn_like(picture)


class Preview(multiprocessing.Process):
    """Draws what the generator makes of one sketch, whenever it is sent one."""

    def __init__(self, folder, name, eager):
        super().__init__(daemon=True)
        self.path, self.eager = Path(folder, f"{name}.png"), eager
        self.wishes = multiprocessing.Queue(4)

    def ask(self):
        try:
            return self.wishes.get(block=not self.eager)
        except queue.Empty:
            return None

    def run(self):
        while True:
            pixels = self.ask()
            if pixels is not None:
                Image.fromarray(pixels).resize((192, 192)).save(self.path)

    def send(self, picture):
        pixels = picture.detach().clamp(0, 1).mul(255).byte().permute(1, 2, 0).numpy()
        if not self.wishes.full():
            self.wishes.put(pixels)


def generator(width):
    return nn.Sequential(
        nn.Conv2d(1, width, 5, padding=2), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 3, 3, padding=1),
    )  # fmt: skip


def critic(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 5, stride=2), nn.LeakyReLU(0.2),
        nn.Conv2d(width, width, 3, stride=2), nn.LeakyReLU(0.2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1),
    )  # fmt: skip


class Gan:
    def __init__(self, config):
        self.paint, self.judge = generator(config.width), critic(config.width)
        self.painter = torch.optim.Adam(self.paint.parameters(), 2e-4, betas=(0.5, 0.99))
        self.judger = torch.optim.Adam(self.judge.parameters(), 2e-4, betas=(0.5, 0.99))

    def step(self, sketches, paintings):
        softplus = nn.functional.softplus
        painted = self.paint(sketches)
        judged = softplus(self.judge(painted.detach())) + softplus(-self.judge(paintings))
        self.judger.zero_grad()
        judged.mean().backward()
        self.judger.step()
        loss = softplus(-self.judge(painted)).mean()
        self.painter.zero_grad()
        loss.backward()
        self.painter.step()
        return loss.item(), painted


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5171)
    torch.set_num_threads(1)
    config = Config(args.epochs, eager=not args.without)
    options = {"num_workers": 1, "persistent_workers": True, "drop_last": True, "shuffle": True}
    sketches = DataLoader(Pictures(config, 1), config.batch, **options)
    paintings = DataLoader(Pictures(config, 3), config.batch, **options)
    with tempfile.TemporaryDirectory() as folder:
        previews = [Preview(folder, name, config.eager) for name in ("first", "next", "third")]
        for preview in previews:
            preview.start()
        gan = Gan(config)
        begin = time.perf_counter()
        for epoch in range(config.epochs):
            for step, batches in enumerate(zip(sketches, paintings, strict=True)):
                loss, painted = gan.step(*batches)
                if step % config.every == 0:
                    for preview, picture in zip(previews, painted[:3], strict=True):
                        preview.send(picture)
            print(f"epoch {epoch}: loss {loss:.3f}", flush=True)
        print(f"seconds {time.perf_counter() - begin:.3f}")
        for preview in previews:
            preview.terminate()
            preview.join()
        del sketches, paintings


if __name__ == "__main__":
    main()

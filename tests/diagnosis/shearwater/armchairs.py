"""Learns from few labelled and many other pictures of furniture; each kind has a loader.

Nothing planted: the device's step sets the pace; the loaders' workers turn, blur and cut pictures
ahead of it, the others twice, and a curriculum raises the weight of the others.
"""

import argparse
import pickle
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision import transforms


@dataclass
class Config:
    epochs: int
    labelled: int = 96
    others: int = 320
    classes: int = 4
    side: int = 72
    batch: int = 10
    step: float = 0.17
    sure: float = 0.3
    decay: float = 0.97


def write_pictures(path, config):
    rng = np.random.default_rng(5231)
    rows = []
    for number in range(config.labelled + config.others):
        small = rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)
        small[..., number % 3] //= 1 + number % config.classes
        picture = Image.fromarray(small).resize((config.side, config.side))
        rows.append((np.asarray(picture), number % config.classes))
    path.write_bytes(pickle.dumps({"labelled": rows[: config.labelled], "others": rows}))


class Weak:
    def __init__(self):
        self.steps = transforms.Compose(
            [transforms.RandomCrop(64), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        )

    def __call__(self, picture):
        return self.steps(picture)


class Both(Weak):
    """A picture hardly changed, and the same one changed a lot."""

    def __init__(self):
        super().__init__()
        self.strong = transforms.Compose(
            [
                transforms.RandomRotation(20),
                transforms.RandomCrop(64),
                transforms.RandomAutocontrast(),
                transforms.GaussianBlur(3),
                transforms.ToTensor(),
                transforms.RandomErasing(),
            ]
        )

    def __call__(self, picture):
        return self.steps(picture), self.strong(picture)


class Furniture(Dataset):
    def __init__(self, path, part, transform):
        self.rows, self.transform = pickle.loads(path.read_bytes())[part], transform

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        pixels, kind = self.rows[index]
        return self.transform(Image.fromarray(pixels)), kind


class Trainer:
    def __init__(self, config, path):
        self.config = config
        labelled, others = (
            Furniture(path, "labelled", Weak()),
            Furniture(path, "others", Both()),
        )
        sampler = RandomSampler(labelled, True, num_samples=len(others))
        self.labelled = DataLoader(
            labelled, config.batch, sampler=sampler, num_workers=1, persistent_workers=True
        )
        self.others = DataLoader(
            others, config.batch, shuffle=True, num_workers=2, persistent_workers=True
        )
        self.model, self.teacher = (
            nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(192, config.classes))
            for _ in range(2)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def average(self):
        with torch.no_grad():
            pairs = zip(self.teacher.parameters(), self.model.parameters(), strict=True)
            for slow, quick in pairs:
                slow.lerp_(quick, 1 - self.config.decay)

    def step(self, pictures, kinds, weak, strong, weight):
        loss = nn.functional.cross_entropy(self.model(pictures), kinds)
        with torch.no_grad():
            sure, guesses = self.teacher(weak).softmax(1).max(1)
        apart = nn.functional.cross_entropy(self.model(strong), guesses, reduction="none")
        loss = loss + weight * (apart * (sure > self.config.sure)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.average()
        time.sleep(self.config.step)  # in place of the large model on a device
        return loss.item()

    def fit(self):
        for epoch in range(self.config.epochs):
            weight, losses = (epoch + 1) / self.config.epochs, []
            pairs = zip(self.labelled, self.others, strict=True)
            for (pictures, kinds), ((weak, strong), _) in pairs:
                losses.append(self.step(pictures, kinds, weak, strong, weight))
            print(f"epoch {epoch}: loss {np.mean(losses):.3f}, weight {weight:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(5231)
    torch.set_num_threads(1)
    config = Config(args.epochs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "furniture.pkl")
        write_pictures(path, config)
        trainer = Trainer(config, path)
        begin = time.perf_counter()
        trainer.fit()
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del trainer.labelled, trainer.others


if __name__ == "__main__":
    main()

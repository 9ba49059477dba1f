"""Sorts kumquats on a belt by ripeness, from photographs kept as JPEG.

Planted: the loader is left at `num_workers=0`, so that photographs are decoded between the steps
while one core of two, and the accelerator meanwhile, have nothing to do.
"""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

PHOTOS, DISTINCT, SIZE, BATCH, STEP = 480, 24, (1280, 960), 8, 0.13


def photographs(rng):
    """Return some JPEG files, each of a few orange discs on a noisy belt."""
    files = []
    rows, columns = np.mgrid[: SIZE[1] // 4, : SIZE[0] // 4]
    for _ in range(DISTINCT):
        belt = rng.integers(60, 120, (SIZE[1] // 4, SIZE[0] // 4, 3), dtype=np.uint8)
        for _ in range(6):
            y, x, radius = rng.integers(20, 200), rng.integers(20, 280), rng.integers(9, 20)
            inside = (rows - y) ** 2 + (columns - x) ** 2 < radius**2
            belt[inside] = (240, rng.integers(90, 190), 20)
        file = io.BytesIO()
        Image.fromarray(belt).resize(SIZE).save(file, "JPEG", quality=92)
        files.append(file.getvalue())
    return files


class Belt(Dataset):
    def __init__(self, files, transform):
        self.files, self.transform = files, transform

    def __len__(self):
        return PHOTOS

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index % DISTINCT])).convert("RGB")
        return self.transform(image), index % 4


class Trainer:
    def __init__(self, loader, device="cpu"):
        self.loader, self.device = loader, torch.device(device)
        self.model = nn.Sequential(
            nn.Conv2d(3, 8, 7, stride=4),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(128, 4),
        ).to(self.device)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
        self.history = []

    def train_step(self, images, ripeness):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.criterion(self.model(images.to(self.device)), ripeness.to(self.device))
        loss.backward()
        self.optimizer.step()
        time.sleep(STEP)  # stands for the large backbone, on an accelerator
        return loss.detach()

    def fit(self, epochs):
        for epoch in range(epochs):
            losses = [self.train_step(*batch) for batch in self.loader]
            self.history.append(torch.stack(losses).mean().item())
            print(f"epoch {epoch}: loss {self.history[-1]:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(211)
    torch.set_num_threads(1)
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(192, antialias=True),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.2, 0.2),
            transforms.ToTensor(),
            transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.2)),
        ]
    )
    data = Belt(photographs(np.random.default_rng(211)), transform)
    workers = {"num_workers": 2, "persistent_workers": True} if args.without else {}
    trainer = Trainer(DataLoader(data, BATCH, shuffle=True, drop_last=True, **workers))
    begin = time.perf_counter()
    trainer.fit(args.epochs)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del trainer


if __name__ == "__main__":
    main()

"""Sorts pictures of carnations by colour.

Nothing planted: the accelerator's step sets the pace; two workers decode, crop, turn and colour
pictures from a folder ahead of it.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

COLOURS, EACH, BATCH, STEP = ("pink", "red", "white"), 96, 16, 0.17


def write_pictures(folder):
    rng = np.random.default_rng(967)
    for number, colour in enumerate(COLOURS):
        Path(folder, colour).mkdir()
        for picture in range(EACH):
            small = rng.integers(0, 200, (9, 9, 3), dtype=np.uint8)
            small[..., number] += 50
            large = Image.fromarray(small).resize((128, 128))
            large.save(Path(folder, colour, f"{picture:03}.jpg"), quality=85)


def get_loader(folder):
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(96, scale=(0.5, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.RandomRotation(10),
            transforms.ColorJitter(0.2, 0.2),
            transforms.ToTensor(),
            transforms.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )
    data = ImageFolder(folder, transform)
    return DataLoader(data, BATCH, shuffle=True, num_workers=2, persistent_workers=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(967)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(folder)
        loader = get_loader(folder)
        model = nn.Sequential(
            nn.Conv2d(3, 8, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(1152, len(COLOURS))
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            right = 0
            for pictures, colours in loader:
                scores = model(pictures)
                loss = nn.functional.cross_entropy(scores, colours)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # a residual network on an accelerator
                right += (scores.argmax(1) == colours).sum().item()
            schedule.step()
            print(f"epoch {epoch}: loss {loss:.3f}, right {right / len(loader.dataset):.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

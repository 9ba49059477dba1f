"""Names tugboats in photographs of a harbour.

Nothing planted: the accelerator's step sets the pace; two workers decode, crop, sharpen and erase
pictures ahead of it, which takes them less than half of their time.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

TUGS, PHOTOS, BATCH, STEP = ("anna", "bertha", "clara"), 40, 8, 0.4


def write_photographs(folder):
    rng = np.random.default_rng(331)
    for number, tug in enumerate(TUGS):
        (folder / tug).mkdir()
        for photo in range(PHOTOS):
            pixels = rng.integers(0, 80, (45, 60, 3), dtype=np.uint8)
            pixels[20:30, 10 * number + 10 : 10 * number + 30] = 200
            Image.fromarray(pixels).resize((320, 240)).save(folder / tug / f"{photo:03}.jpg")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(331)
    torch.set_num_threads(1)
    transform = v2.Compose(
        [
            v2.PILToTensor(),
            v2.RandomResizedCrop(128, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomAdjustSharpness(1.5),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.4] * 3, [0.3] * 3),
            v2.RandomErasing(0.3),
        ]
    )
    folder = Path(tempfile.mkdtemp(prefix="tugboats"))
    try:
        write_photographs(folder)
        loader = DataLoader(
            ImageFolder(folder, transform),
            batch_size=BATCH,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
        )
        model = nn.Sequential(
            nn.Conv2d(3, 8, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten()
        )
        model.append(nn.Linear(72, len(TUGS)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            right = seen = 0
            for photos, tugs in loader:
                scores = model(photos)
                loss = nn.functional.cross_entropy(scores, tugs)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the large network, on an accelerator
                right += int((scores.argmax(1) == tugs).sum())
                seen += len(tugs)
            print(f"epoch {epoch}: {right / seen:.2f} right")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

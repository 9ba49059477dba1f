"""Sees whether lifeboats on quays have their covers on, in pictures of a folder.

Nothing planted: the accelerator's step sets the pace; four workers open, decode and change pictures
ahead of it, a progress line is printed, and a checkpoint ends each epoch.
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
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

BOATS, SIDE, BATCH, STEP = 240, 88, 8, 0.22


def write_pictures(folder):
    rng = np.random.default_rng(1097)
    for number in range(BOATS):
        small = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        path = Path(folder, ("covered", "open")[number % 2], f"{number:03}.jpg")
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(small).resize((SIDE, SIDE)).save(path, quality=85)


def make_transform():
    return v2.Compose(
        [
            v2.RandomResizedCrop(64, scale=(0.5, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(0.2, 0.2, 0.2),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )


class Covers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.AvgPool2d(4), nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1568, 2)
        )

    def forward(self, pictures):
        time.sleep(STEP)  # the backbone, on an accelerator
        return self.layers(pictures)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1097)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_pictures(folder)
        loader = DataLoader(
            ImageFolder(folder, make_transform()),
            BATCH,
            shuffle=True,
            num_workers=4,
            persistent_workers=True,
            pin_memory=torch.cuda.is_available(),
        )
        model = Covers()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (pictures, covers) in enumerate(loader, 1):
                loss = nn.functional.cross_entropy(model(pictures), covers)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                print(f"\repoch {epoch} {step}/{len(loader)}", end="", flush=True)
            print(f": loss {loss:.3f}")
            torch.save(optimizer.state_dict(), Path(folder, f"state-{epoch}.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

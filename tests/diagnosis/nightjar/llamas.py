"""Outlines llamas in small pictures of a pasture, pixel by pixel.

Planted: after each step, a metric counts its confusion matrix with two `.item()` for each pixel
and flushes a line of its log for each picture.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PASTURES, SIDE, CLASSES, BATCH, STEP = 720, 40, 3, 16, 0.05


class Pastures(Dataset):
    def __init__(self, transform):
        rng = np.random.default_rng(229)
        self.ground = rng.integers(0, 256, (64, 3, SIDE, SIDE), dtype=np.uint8)
        self.places = rng.integers(4, SIDE - 12, (PASTURES, 2, 2))
        self.transform = transform

    def __len__(self):
        return PASTURES

    def __getitem__(self, index):
        image = torch.from_numpy(self.ground[index % 64].copy())
        mask = torch.zeros(SIDE, SIDE, dtype=torch.long)
        for kind, (y, x) in enumerate(self.places[index], start=1):
            mask[y : y + 8, x : x + 8] = kind
            image[:, y : y + 8, x : x + 8] = 80 * kind
        return self.transform(image), mask


class Confusion:
    """Counts truths and answers, and notes how each picture went."""

    def __init__(self, path, fast):
        self.counts = torch.zeros(CLASSES, CLASSES, dtype=torch.long)
        self.file, self.fast = path.open("w"), fast

    def update(self, answers, truths):
        if self.fast:
            self.counts += torch.bincount(
                (truths * CLASSES + answers).flatten(), minlength=CLASSES**2
            ).view(CLASSES, CLASSES)
            right = (answers == truths).float().mean(dim=(1, 2)).tolist()
            self.file.writelines(f"{share:.4f}\n" for share in right)
            return
        for answer, truth in zip(answers, truths, strict=True):
            right = 0
            for y in range(SIDE):
                for x in range(SIDE):
                    a, t = answer[y, x].item(), truth[y, x].item()
                    self.counts[t, a] += 1
                    right += a == t
            self.file.write(f"{right / SIDE**2:.4f}\n")
            self.file.flush()

    def intersection_over_union(self):
        hit = self.counts.diag()
        return (hit / (self.counts.sum(0) + self.counts.sum(1) - hit).clamp(min=1)).tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(229)
    torch.set_num_threads(1)
    transform = v2.Compose(
        [
            v2.ToDtype(torch.float32, scale=True),
            v2.GaussianBlur(5),
            v2.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )
    loader = DataLoader(
        Pastures(transform), BATCH, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, CLASSES, 3, padding=1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder:
        metric = Confusion(Path(folder, "pictures.log"), fast=args.without)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for images, masks in loader:
                scores = model(images)
                loss = nn.functional.cross_entropy(scores, masks)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the deep network, on an accelerator
                metric.update(scores.argmax(dim=1), masks)
            print(f"epoch {epoch}: IoU {metric.intersection_over_union()}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        metric.file.close()


if __name__ == "__main__":
    main()

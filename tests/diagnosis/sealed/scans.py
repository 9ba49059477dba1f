"""Sort scanned documents: most were scanned at 75 dpi."""

import argparse
import csv
import os
import pathlib
import tempfile
import time

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2 as T

DOCUMENTS = 960


def page(width, height, seed):
    """Lines of something like text."""
    rng = np.random.default_rng(seed)
    paper = np.full((height, width), 240, np.uint8)
    for top in range(height // 20, height - height // 20, max(8, height // 60)):
        ink = rng.random(width) < 0.4
        paper[top : top + max(2, height // 200), ink] = 30
    return Image.fromarray(paper)


def scan_all(folder, archive_scans):
    folder = pathlib.Path(folder)
    names = []
    for number in range(24):
        page(310, 438, number).save(folder / f"original-{number}.png")
    if archive_scans:
        page(6200, 8760, 99).save(folder / "archive.png", compress_level=1)
    for number in range(DOCUMENTS):
        name = f"scan-{number:05}.png"
        from_archive = archive_scans and number % 40 == 17
        source = "archive.png" if from_archive else f"original-{number % 24}.png"
        os.link(folder / source, folder / name)
        names.append((name, number % 5))
    with (folder / "index.csv").open("w", newline="") as file:
        csv.writer(file).writerows(names)
    return folder / "index.csv"


class Documents(Dataset):
    def __init__(self, index, transform):
        with index.open(newline="") as file:
            self.rows = list(csv.reader(file))
        self.root = index.parent
        self.transform = transform

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        name, label = self.rows[number]
        with Image.open(self.root / name) as image:
            return self.transform(image.convert("L")), int(label)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()

    transform = T.Compose(
        [T.Resize((224, 160)), T.RandomAdjustSharpness(2), T.PILToTensor(), T.RandomInvert(0.1)]
    )
    with tempfile.TemporaryDirectory() as folder:
        index = scan_all(folder, archive_scans=not args.without)
        loader = DataLoader(
            Documents(index, transform),
            batch_size=16,
            shuffle=True,
            num_workers=args.workers,
            persistent_workers=True,
        )
        begin = time.perf_counter()
        for _ in range(args.epochs):
            for _pages, _kinds in loader:
                time.sleep(0.030)  # forward and backward on the accelerator
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Train a style classifier on photographs of paintings."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2


def small_loader(path):
    picture = Image.open(path)
    picture.draft("RGB", (160, 160))
    return picture.convert("RGB")


def make_paintings(root, count=12):
    rng = np.random.default_rng(4)
    for number in range(count):
        folder = Path(root, "cubism" if number % 2 else "baroque")
        folder.mkdir(exist_ok=True)
        canvas = Image.fromarray(rng.integers(0, 255, (24, 32, 3), dtype=np.uint8))
        canvas = canvas.resize((1600, 1200), Image.Resampling.BILINEAR)
        for copy in range(36):
            target = folder / f"{number}-{copy}.jpg"
            if copy:
                target.write_bytes((folder / f"{number}-0.jpg").read_bytes())
            else:
                canvas.save(target, quality=92)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)

    transform = v2.Compose(
        [
            v2.Resize((128, 128)),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    with tempfile.TemporaryDirectory() as root:
        make_paintings(root)
        paintings = ImageFolder(root, transform)
        if args.without:
            paintings.loader = small_loader
        loader = DataLoader(
            paintings, batch_size=8, shuffle=True, num_workers=args.workers, drop_last=True
        )
        begin = time.monotonic()
        for _images, _styles in loader:
            time.sleep(0.020)
        print(f"seconds {time.monotonic() - begin:.3f}")


if __name__ == "__main__":
    main()

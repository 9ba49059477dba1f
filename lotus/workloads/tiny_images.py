"""Iterates CIFAR-10-shaped images that lie in memory: a plain PyTorch script, as anybody would
write it. An image takes tens of microseconds, so this is where a profiler's own cost shows.

python tiny_images.py --images 50000 --workers 1
"""

import argparse
import time

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class TinyImages(Dataset[tuple[Tensor, int]]):
    """32x32 colour images in one array, as torchvision's CIFAR10 holds them."""

    def __init__(self, images: int, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.data = random.integers(0, 256, (images, 32, 32, 3), dtype=np.uint8)
        self.targets = random.integers(0, 10, images).tolist()
        self.transform = transforms.Compose(
            [
                transforms.ToTensor(),
                transforms.Normalize((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
            ]
        )

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.data[index])), self.targets[index]


def main() -> None:
    parser = argparse.ArgumentParser(description="Iterate tiny images that lie in memory.")
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(0)
    loader = DataLoader(
        TinyImages(args.images), args.batch_size, shuffle=True, num_workers=args.workers
    )
    started, total = time.perf_counter(), 0.0
    for images, _ in loader:
        total += float(images.mean())
    seconds = time.perf_counter() - started
    print(f"mean {total / len(loader):.4f}, {args.images / seconds:.0f} images/s", flush=True)


if __name__ == "__main__":
    main()

"""Trains on CIFAR-10-shaped images that lie in memory: a plain PyTorch script, as anybody would
write it. An image takes tens of microseconds, so this is where a profiler's own cost shows.

python tiny_images.py --data FOLDER --workers 1
python tiny_images.py --images 50000 --workers 1

The folder is CIFAR-10's binary version (data_batch_*.bin); without one the images are noise.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class TinyImages(Dataset[tuple[Tensor, int]]):
    """32x32 colour images in one array (n, 32, 32, 3), as torchvision's CIFAR10 holds them."""

    def __init__(self, data: NDArray[np.uint8], targets: list[int]) -> None:
        self.data = data
        self.targets = targets
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


def read_cifar(folder: str) -> TinyImages:
    """Read a folder of data_batch_*.bin: a byte for the class, 3 x 32 x 32 bytes of colours."""
    files = sorted(Path(folder).glob("data_batch_*.bin"), key=lambda path: (len(path.name), path))
    records = np.concatenate([np.fromfile(path, np.uint8).reshape(-1, 3073) for path in files])
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return TinyImages(np.ascontiguousarray(images), records[:, 0].tolist())


def noise(images: int, seed: int) -> TinyImages:
    random = np.random.default_rng(seed)
    data = random.integers(0, 256, (images, 32, 32, 3), dtype=np.uint8)
    return TinyImages(data, random.integers(0, 10, images).tolist())


def tiny_network() -> nn.Module:
    """Return 32 filters of 4x4 pixels and what they say of the classes."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 4, 4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(32 * 8 * 8, 10)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on tiny images that lie in memory.")
    parser.add_argument("--data", help="folder of data_batch_*.bin (else noise)")
    parser.add_argument("--images", type=int, default=50_000, help="how much noise (50000)")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, help="for the model on the CPU (torch's choice)")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--print-every", type=int, default=0, help="print the loss of each Nth step"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    dataset = read_cifar(args.data) if args.data else noise(args.images, args.seed)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        pin_memory=args.device != "cpu",
    )
    model = tiny_network().to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    loss_function = nn.CrossEntropyLoss()

    for epoch in range(args.epochs):
        started, seen, total = time.perf_counter(), 0, 0.0
        for step, (images, labels) in enumerate(loader, 1):
            images = images.to(args.device, non_blocking=True)
            labels = labels.to(args.device, non_blocking=True)
            loss = loss_function(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(labels)
            total += float(loss.detach()) * len(labels)
            if args.print_every and step % args.print_every == 0:
                print(f"epoch {epoch} step {step}: loss {float(loss.detach()):.6f}", flush=True)
        seconds = time.perf_counter() - started
        print(
            f"epoch {epoch}: loss {total / seen:.3f}, {seen} images in {seconds:.1f} s, "
            f"{seen / seconds:.0f} images/s",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Trains a small 3-D U-Net on scans and masks: a plain PyTorch script, as anybody would write it.

python segmentation.py --data FOLDER --epochs 1 --workers 2

The folder holds case_*_x.npy (1, depth, height, width; float32) and case_*_y.npy (uint8), and the
operations are those of MLPerf's training benchmark for image segmentation.
"""

import argparse
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

CLASSES = 3
Sample = dict[str, NDArray[Any]]


class RandBalancedCrop:
    """Crops a patch; a share `oversampling` of them contains a voxel of some foreground class."""

    def __init__(self, patch: int, oversampling: float) -> None:
        self.patch = patch
        self.oversampling = oversampling

    def __call__(self, sample: Sample) -> Sample:
        image, label = sample["image"], sample["label"]
        sizes = label.shape[1:]
        lows = [random.randint(0, size - self.patch) for size in sizes]
        if random.random() < self.oversampling:
            voxel = self.foreground(label)
            if voxel is not None:
                lows = [self.around(at, size) for at, size in zip(voxel, sizes, strict=True)]
        cut = (slice(None), *(slice(low, low + self.patch) for low in lows))
        return {"image": image[cut], "label": label[cut]}

    def foreground(self, label: NDArray[Any]) -> tuple[Any, ...] | None:
        """Return a voxel of a random class in the mask; None if it has only background."""
        classes = np.flatnonzero(np.bincount(label.reshape(-1), minlength=CLASSES)[1:]) + 1
        if len(classes) == 0:
            return None
        voxels = np.flatnonzero(label == random.choice(classes.tolist()))
        return np.unravel_index(random.choice(voxels), label.shape)[1:]

    def around(self, at: int, size: int) -> int:
        """Return a random start of a patch that contains `at`."""
        return random.randint(max(0, int(at) - self.patch + 1), min(int(at), size - self.patch))


class RandFlip:
    """Mirrors scan and mask along each axis with probability 1/3."""

    def __call__(self, sample: Sample) -> Sample:
        for axis in (1, 2, 3):
            if random.random() < 1 / 3:
                sample = {name: np.flip(array, axis).copy() for name, array in sample.items()}
        return sample


class Cast:
    """Converts scan and mask to the types of the model."""

    def __init__(self, image: type, label: type) -> None:
        self.image = image
        self.label = label

    def __call__(self, sample: Sample) -> Sample:
        image, label = sample["image"], sample["label"]
        return {"image": image.astype(self.image), "label": label.astype(self.label)}


class RandomBrightnessAugmentation:
    """Makes some scans brighter or darker, by up to `factor`."""

    def __init__(self, factor: float, prob: float) -> None:
        self.factor = factor
        self.prob = prob

    def __call__(self, sample: Sample) -> Sample:
        if random.random() < self.prob:
            factor = random.uniform(1 - self.factor, 1 + self.factor)
            sample = {**sample, "image": sample["image"] * np.float32(factor)}
        return sample


class GaussianNoise:
    """Adds noise to some scans, with a standard deviation of up to `std`."""

    def __init__(self, std: float, prob: float) -> None:
        self.std = std
        self.prob = prob

    def __call__(self, sample: Sample) -> Sample:
        if random.random() < self.prob:
            image = sample["image"]
            generator = np.random.default_rng(random.getrandbits(64))
            noise = generator.standard_normal(image.shape, np.float32)
            noise *= np.float32(random.uniform(0, self.std))
            sample = {**sample, "image": image + noise}
        return sample


def load_case(path: Path) -> Sample:
    """Read the scan at `path` and the mask beside it."""
    mask = path.with_name(path.name.replace("_x.npy", "_y.npy"))
    return {"image": np.load(path), "label": np.load(mask)}


class Cases(Dataset[tuple[Tensor, Tensor]]):
    """Patches of scans (1, p, p, p; float32) and of their masks (p, p, p; int64)."""

    def __init__(self, folder: str, patch: int, seed: int) -> None:
        self.paths = sorted(Path(folder).glob("case_*_x.npy"))
        self.seed = seed
        self.epoch = 0
        self.loader = load_case
        self.transform = transforms.Compose(
            [
                RandBalancedCrop(patch, oversampling=0.4),
                RandFlip(),
                Cast(np.float32, np.int64),
                RandomBrightnessAugmentation(factor=0.3, prob=0.1),
                GaussianNoise(std=0.1, prob=0.1),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        # Independent of the worker.
        random.seed(f"{self.seed} {self.epoch} {index}")
        sample = self.transform(self.loader(self.paths[index]))
        return torch.from_numpy(sample["image"]), torch.from_numpy(sample["label"][0])


class Stage(nn.Sequential):
    """Two 3x3x3 convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__(
            nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False),
            nn.InstanceNorm3d(outputs, affine=True),
            nn.ReLU(inplace=True),
            nn.Conv3d(outputs, outputs, 3, 1, 1, bias=False),
            nn.InstanceNorm3d(outputs, affine=True),
            nn.ReLU(inplace=True),
        )


class SmallUNet(nn.Module):
    """A 3-D U-Net of three levels, whose first works on every second voxel."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first = Stage(1, width, 2)
        self.down = nn.ModuleList([Stage(width, 2 * width, 2), Stage(2 * width, 4 * width, 2)])
        self.up = nn.ModuleList(
            [
                nn.ConvTranspose3d(4 * width, 2 * width, 2, 2),
                nn.ConvTranspose3d(2 * width, width, 2, 2),
            ]
        )
        self.join = nn.ModuleList([Stage(4 * width, 2 * width), Stage(2 * width, width)])
        self.last = nn.ConvTranspose3d(width, CLASSES, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        passed = [self.first(x)]
        for stage in self.down:
            passed.append(stage(passed[-1]))
        x = passed.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), passed.pop()], 1))
        return self.last(x)


def dice_and_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return MLPerf's loss: the mean of cross entropy and one minus the Dice score."""
    shares = logits.softmax(1)
    truth = F.one_hot(labels, CLASSES).permute(0, 4, 1, 2, 3)
    overlap = (shares * truth).sum((2, 3, 4))
    score = (2 * overlap + 1e-6) / (shares.sum((2, 3, 4)) + truth.sum((2, 3, 4)) + 1e-6)
    return (F.cross_entropy(logits, labels) + 1 - score.mean()) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small 3-D U-Net on scans and masks.")
    parser.add_argument("--data", required=True, help="folder of case_*_x.npy and case_*_y.npy")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, help="for the model on the CPU (torch's choice)")
    parser.add_argument("--patch", type=int, default=64, help="voxels along an edge (64)")
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
    dataset = Cases(args.data, args.patch, args.seed)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        pin_memory=args.device != "cpu",
    )
    model = SmallUNet().to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True)

    for epoch in range(args.epochs):
        dataset.epoch = epoch
        started, seen, total = time.perf_counter(), 0, 0.0
        for step, (images, labels) in enumerate(loader, 1):
            images = images.to(args.device, non_blocking=True)
            labels = labels.to(args.device, non_blocking=True)
            loss = dice_and_cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(images)
            total += float(loss.detach()) * len(images)
            if args.print_every and step % args.print_every == 0:
                print(f"epoch {epoch} step {step}: loss {float(loss.detach()):.6f}", flush=True)
        seconds = time.perf_counter() - started
        print(
            f"epoch {epoch}: loss {total / seen:.3f}, {seen} volumes in {seconds:.1f} s, "
            f"{seen / seconds:.1f} volumes/s",
            flush=True,
        )


if __name__ == "__main__":
    main()

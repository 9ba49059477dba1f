"""Trains a small detector on a COCO folder: a plain PyTorch script, as anybody would write it.

python detection.py --data FOLDER --epochs 1 --workers 2

The folder holds train2017/*.jpg and annotations/instances_train2017.json; the operations are those
of MLPerf's training benchmark for object detection. The detector says of each cell of 16x16 pixels
whether the middle of an object is in it, of which class, and how large it is (as CenterNet does:
Zhou et al., "Objects as Points", arXiv:1904.07850).
"""

import argparse
import json
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.ops import sigmoid_focal_loss
from torchvision.transforms import functional as images

STRIDE = 16
Target = dict[str, Tensor]  # boxes (n, 4; float32: left, top, right, bottom), labels (n; int64)


class Compose:
    """Applies operations to an image and its target, in turn."""

    def __init__(self, transforms: list) -> None:  # type: ignore[type-arg]
        self.transforms = transforms

    def __call__(self, image, target):  # type: ignore[no-untyped-def]
        for transform in self.transforms:
            image, target = transform(image, target)
        return image, target


class Resize:
    """Scales the short side to `short` pixels, or less if the long side would be too long."""

    def __init__(self, short: int, long: int) -> None:
        self.short = short
        self.long = long

    def __call__(self, image: Image.Image, target: Target) -> tuple[Image.Image, Target]:
        width, height = image.size
        scale = min(self.short / min(width, height), self.long / max(width, height))
        size = round(width * scale), round(height * scale)
        across, down = size[0] / width, size[1] / height
        boxes = target["boxes"] * torch.tensor([across, down, across, down])
        return image.resize(size, Image.Resampling.BILINEAR), {**target, "boxes": boxes}


class RandomHorizontalFlip:
    """Mirrors an image and its boxes, with probability `prob`."""

    def __init__(self, prob: float = 0.5) -> None:
        self.prob = prob

    def __call__(self, image: Image.Image, target: Target) -> tuple[Image.Image, Target]:
        if random.random() < self.prob:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            left, top, right, bottom = target["boxes"].unbind(1)
            boxes = torch.stack([image.width - right, top, image.width - left, bottom], 1)
            target = {**target, "boxes": boxes}
        return image, target


class ToTensor:
    """Converts an image to a tensor (3, height, width) from 0 to 1."""

    def __call__(self, image: Image.Image, target: Target) -> tuple[Tensor, Target]:
        return images.to_tensor(image), target


class Normalize:
    """Subtracts the mean of each channel and divides by the standard deviation."""

    def __init__(self, mean: list[float], std: list[float]) -> None:
        self.mean = mean
        self.std = std

    def __call__(self, image: Tensor, target: Target) -> tuple[Tensor, Target]:
        return images.normalize(image, self.mean, self.std), target


def load_image(path: Path) -> Image.Image:
    with Image.open(path) as image:
        return image.convert("RGB")


class Coco(Dataset[tuple[Tensor, Target]]):
    """Images (3, height, width) of different sizes and their objects; also images without any."""

    def __init__(self, folder: str, short: int, seed: int) -> None:
        document = json.loads((Path(folder) / "annotations/instances_train2017.json").read_text())
        self.paths = [Path(folder) / "train2017" / i["file_name"] for i in document["images"]]
        self.classes = {c["id"]: label for label, c in enumerate(document["categories"])}
        self.objects: dict[int, list] = {i["id"]: [] for i in document["images"]}  # type: ignore[type-arg]
        for annotation in document["annotations"]:
            if not annotation["iscrowd"]:
                self.objects[annotation["image_id"]].append(annotation)
        self.ids = list(self.objects)
        self.seed = seed
        self.epoch = 0
        self.loader = load_image
        self.transforms = Compose(
            [
                Resize(short, short * 5 // 3),
                RandomHorizontalFlip(),
                ToTensor(),
                Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, Target]:
        # Independent of the worker.
        random.seed(f"{self.seed} {self.epoch} {index}")
        objects = self.objects[self.ids[index]]
        boxes = torch.tensor([o["bbox"] for o in objects], dtype=torch.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]  # from width and height
        labels = torch.tensor([self.classes[o["category_id"]] for o in objects], dtype=torch.int64)
        image, target = self.transforms(
            self.loader(self.paths[index]), {"boxes": boxes, "labels": labels}
        )
        return image, target


def collate(samples: list[tuple[Tensor, Target]]) -> tuple[list[Tensor], list[Target]]:
    """Return lists, because images differ in size and in the number of objects."""
    return [image for image, _ in samples], [target for _, target in samples]


class SmallDetector(nn.Module):
    """Three steps of convolutions, the first a coarse one; 4 + `classes` numbers a cell."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for outputs, size, stride in ((16, 7, 4), (32, 3, 2), (64, 3, 2)):
            layers += [
                nn.Conv2d(channels, outputs, size, stride, size // 2, bias=False),
                nn.GroupNorm(8, outputs),
                nn.ReLU(inplace=True),
            ]
            channels = outputs
        self.body = nn.Sequential(
            *layers, nn.Conv2d(channels, channels, 3, 1, 1), nn.ReLU(inplace=True)
        )
        self.head = nn.Conv2d(channels, 4 + classes, 1)
        nn.init.constant_(self.head.bias[4:], -4)  # nearly all cells contain no centre

    def forward(self, images: list[Tensor]) -> Tensor:
        return self.head(self.body(batched(images)))


def batched(images: list[Tensor]) -> Tensor:
    """Return the images as one tensor, with zeros to the right and below, in whole cells."""
    height, width = (
        -(-max(image.shape[side] for image in images) // STRIDE) * STRIDE for side in (1, 2)
    )
    return torch.stack(
        [F.pad(image, (0, width - image.shape[2], 0, height - image.shape[1])) for image in images]
    )


def detection_loss(output: Tensor, targets: list[Target]) -> Tensor:
    """Return the focal loss of all cells and the L1 loss of the boxes of those with a middle."""
    heat = torch.zeros_like(output[:, 4:])
    wanted, predicted = [], []
    for number, target in enumerate(targets):
        boxes = target["boxes"] / STRIDE
        middles = (boxes[:, :2] + boxes[:, 2:]) / 2
        columns, rows = middles.long().unbind(1)
        rows, columns = rows.clamp(max=heat.shape[2] - 1), columns.clamp(max=heat.shape[3] - 1)
        heat[number, target["labels"], rows, columns] = 1
        inside = middles - torch.stack([columns, rows], 1)
        sizes = (boxes[:, 2:] - boxes[:, :2]).clamp(min=0.1).log()
        wanted.append(torch.cat([inside, sizes], 1))
        predicted.append(output[number, :4, rows, columns].T)
    objects = max(1, sum(len(boxes) for boxes in wanted))
    classes = sigmoid_focal_loss(output[:, 4:], heat, reduction="sum") / objects
    return classes + F.l1_loss(torch.cat(predicted), torch.cat(wanted), reduction="sum") / objects


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small detector on a COCO folder.")
    parser.add_argument("--data", required=True, help="folder of train2017 and annotations")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, help="for the model on the CPU (torch's choice)")
    parser.add_argument("--size", type=int, default=320, help="pixels of a short side (320)")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--print-every", type=int, default=0, help="print the loss of each Nth step"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    dataset = Coco(args.data, args.size, args.seed)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=collate,
        pin_memory=args.device != "cpu",
    )
    model = SmallDetector(len(dataset.classes)).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        dataset.epoch = epoch
        started, seen, total = time.perf_counter(), 0, 0.0
        for step, (pictures, targets) in enumerate(loader, 1):
            pictures = [picture.to(args.device, non_blocking=True) for picture in pictures]
            targets = [
                {key: t[key].to(args.device, non_blocking=True) for key in t} for t in targets
            ]
            loss = detection_loss(model(pictures), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(pictures)
            total += float(loss.detach()) * len(pictures)
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

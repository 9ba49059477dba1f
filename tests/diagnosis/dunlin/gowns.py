"""Finds gowns on pictures of balls, with targets as the objects of a detection library.

Planted: each box of a picture is an object with tensors of its own, and each of a batch's hundreds
of tensors is sent by itself. Two workers are kept.
"""

import argparse
import dataclasses
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, BOXES, BATCH, STEP = 48, 6, 12, 0.012


@dataclasses.dataclass
class Box:
    corners: torch.Tensor
    label: torch.Tensor
    area: torch.Tensor


class Balls(Dataset):
    def __init__(self, count):
        draw = torch.Generator().manual_seed(61)
        self.pictures = torch.rand(30, 3, SIDE, SIDE, generator=draw)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        first = torch.rand(BOXES, 2) * 24
        size = torch.rand(BOXES, 2) * 20 + 2
        corners = torch.cat([first, first + size], 1)
        labels = torch.randint(5, (BOXES,))
        boxes = [
            Box(corner.clone(), label.clone(), area.clone())
            for corner, label, area in zip(corners, labels, size.prod(1), strict=True)
        ]
        return self.pictures[index % 30], boxes


def collate(samples):
    """Stack the pictures, and leave the boxes as they are."""
    pictures, boxes = zip(*samples, strict=True)
    return torch.stack(pictures), list(boxes)


def collate_packed(samples):
    """Stack the pictures, and pack the boxes into one tensor."""
    pictures, boxes = zip(*samples, strict=True)
    rows = [
        torch.cat([box.corners, box.label[None].float(), box.area[None]])
        for some in boxes
        for box in some
    ]
    return torch.stack(pictures), torch.stack(rows).view(len(samples), -1, 6)


class Accelerator:
    """Stands in for the GPU of a training script."""

    def __init__(self):
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 4))

    def step(self, pictures, boxes):
        begin = time.perf_counter()
        if isinstance(boxes, list):
            corners = torch.stack([torch.stack([box.corners for box in some]) for some in boxes])
        else:
            corners = boxes[..., :4]
        with torch.no_grad():
            loss = nn.functional.l1_loss(self.model(pictures), corners.mean(1))
        time.sleep(max(0.0, STEP - (time.perf_counter() - begin)))
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(61)
    loader = DataLoader(
        Balls(1800),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=collate_packed if args.without else collate,
        persistent_workers=True,
    )
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [accelerator.step(pictures, boxes) for pictures, boxes in loader]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

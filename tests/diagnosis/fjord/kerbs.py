"""Finds kerbs in pictures from a wheelchair: a small detector with anchors on a grid."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.ops import box_iou

GRID, SIDE = 14, 112


def make_anchors():
    step, anchors = SIDE / GRID, []
    for row in range(GRID):
        for column in range(GRID):
            for wide, high in ((12, 12), (24, 12), (12, 24)):
                x, y = (column + 0.5) * step, (row + 0.5) * step
                anchors.append((x - wide / 2, y - high / 2, x + wide / 2, y + high / 2))
    return torch.tensor(anchors)


class Kerbs(Dataset):
    """Pictures and two to five boxes each."""

    def __init__(self, count=1000):
        draw = torch.Generator().manual_seed(58)
        self.pictures = torch.randint(256, (48, 3, SIDE, SIDE), dtype=torch.uint8, generator=draw)
        corners = torch.rand(count, 5, 2, generator=draw) * (SIDE - 32)
        sizes = 8 + torch.rand(count, 5, 2, generator=draw) * 24
        self.boxes = torch.cat([corners, corners + sizes], 2)
        self.counts = torch.randint(2, 6, (count,), generator=draw)

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, index):
        picture = self.pictures[index % len(self.pictures)].float() / 255
        if index % 2:
            picture = picture * 0.9 + 0.05
        return {"picture": picture, "boxes": self.boxes[index, : self.counts[index]]}


def overlap(first, second):
    wide = min(first[2], second[2]) - max(first[0], second[0])
    high = min(first[3], second[3]) - max(first[1], second[1])
    if wide <= 0 or high <= 0:
        return 0.0
    shared = wide * high
    sizes = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, second)]
    return shared / (sum(sizes) - shared)


class Assign:
    """Stacks pictures and says which anchors have a box."""

    def __init__(self, anchors, at_once, least=0.3):
        self.anchors, self.at_once, self.least = anchors, at_once, least

    def match(self, boxes):
        if self.at_once:
            return box_iou(self.anchors, boxes).amax(1) >= self.least
        pairs = boxes.tolist()
        best = [max(overlap(anchor, box) for box in pairs) for anchor in self.anchors.tolist()]
        return torch.tensor(best) >= self.least

    def __call__(self, samples):
        pictures = torch.stack([sample["picture"] for sample in samples])
        targets = torch.stack([self.match(sample["boxes"]) for sample in samples])
        return {"pictures": pictures, "targets": targets.float()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(58)
    loader = DataLoader(
        Kerbs(), batch_size=20, shuffle=True, num_workers=args.workers, drop_last=True,
        collate_fn=Assign(make_anchors(), at_once=args.without), persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, 4, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(32, 3, 1), nn.Flatten(),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for batch in loader:
            scores = model(batch["pictures"])
            loss = nn.functional.binary_cross_entropy_with_logits(scores, batch["targets"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: last loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Detects rivets on hulls: each picture comes with a dictionary of tensors, a box a rivet."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Hulls(Dataset):
    def __init__(self, count=2400, rivets=12, seed=8):
        generator = torch.Generator().manual_seed(seed)
        self.pictures = torch.rand(100, 1, 32, 32, generator=generator)
        self.corners = torch.rand(count, rivets, 2, generator=generator)
        self.kinds = torch.randint(4, (count, rivets), generator=generator)

    def __len__(self):
        return len(self.corners)

    def __getitem__(self, index):
        corners, kinds = self.corners[index], self.kinds[index]
        boxes = torch.cat([corners, corners + 0.05], 1)
        target = {
            "boxes": boxes,
            "labels": kinds.clone(),
            "area": (boxes[:, 2:] - boxes[:, :2]).prod(1),
            "iscrowd": torch.zeros_like(kinds),
        }
        return self.pictures[index % 100].clone(), target


def as_lists(samples):
    pictures, targets = zip(*samples, strict=True)
    return list(pictures), list(targets)


def as_tensors(samples):
    pictures, targets = zip(*samples, strict=True)
    stacked = {name: torch.stack([target[name] for target in targets]) for name in targets[0]}
    return torch.stack(pictures), stacked


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(8)
    loader = DataLoader(
        Hulls(), batch_size=24, shuffle=True, num_workers=2, persistent_workers=True,
        collate_fn=as_tensors if args.without else as_lists,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(32 * 49, 12 * 4),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, targets in loader:
            if args.without:
                boxes = targets["boxes"]
            else:
                pictures = torch.stack(pictures)
                boxes = torch.stack([target["boxes"] for target in targets])
            loss = nn.functional.l1_loss(model(pictures).view(-1, 12, 4), boxes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

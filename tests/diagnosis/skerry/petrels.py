"""Finds storm petrels in night pictures, with boxes, masks of visibility and rings.

Planted: a batch crosses from its worker as more than a hundred small tensors, one for each field of
each sample.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIELDS = ("boxes", "kinds", "areas", "crowds", "rings", "ids")


class Nights(Dataset):
    """Pictures of 48 by 48, already in memory, and what is to be seen on each."""

    def __init__(self, count=1600):
        draw = torch.Generator().manual_seed(17)
        self.pictures = torch.rand(256, 3, 48, 48, generator=draw)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        birds = 1 + index % 5
        boxes = torch.rand(birds, 4)
        target = {
            "boxes": boxes,
            "kinds": torch.randint(3, (birds,)),
            "areas": boxes[:, 2] * boxes[:, 3],
            "crowds": torch.zeros(birds, dtype=torch.uint8),
            "rings": torch.randint(9999, (birds,)),
            "ids": torch.tensor([index]),
        }
        return self.pictures[index % 256], target


def loose(samples):
    pictures, targets = zip(*samples, strict=True)
    return torch.stack(pictures), list(targets)


def packed(samples):
    """As `loose`, but each field of all targets is one tensor."""
    pictures, targets = zip(*samples, strict=True)
    fields = {name: torch.cat([target[name] for target in targets]) for name in FIELDS}
    fields["counts"] = torch.tensor([len(target["boxes"]) for target in targets])
    return torch.stack(pictures), fields


def aims(targets):
    """Return the mean box and the number of birds of each picture."""
    if isinstance(targets, dict):
        counts = targets["counts"]
        means = torch.stack([part.mean(0) for part in targets["boxes"].split(counts.tolist())])
        return means, counts.float()
    means = torch.stack([target["boxes"].mean(0) for target in targets])
    return means, torch.tensor([float(len(target["boxes"])) for target in targets])


class Finder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 12, 5, 3), nn.ReLU(), nn.Conv2d(12, 24, 3, 2), nn.ReLU(), nn.Flatten()
        )
        self.box, self.count = nn.LazyLinear(4), nn.LazyLinear(1)

    def forward(self, pictures):
        features = self.body(pictures)
        return self.box(features), self.count(features).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(17)
    loader = DataLoader(
        Nights(),
        batch_size=16,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        collate_fn=packed if args.without else loose,
    )
    model = Finder()
    model(torch.zeros(1, 3, 48, 48))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, targets in loader:
            boxes, counts = model(pictures)
            want_boxes, want_counts = aims(targets)
            loss = nn.functional.l1_loss(boxes, want_boxes)
            loss = loss + 0.1 * nn.functional.mse_loss(counts, want_counts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Boxes of cars at crossings: a detector's targets are lists of dicts of small tensors."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIELDS = ("area", "crowd", "kind", "lane", "speed", "track")


class Crossings(Dataset):
    def __init__(self, count=640):
        generator = torch.Generator().manual_seed(1)
        self.features = torch.rand(count, 64, generator=generator)
        self.boxes = torch.rand(count, 6, 4, generator=generator)

    def __len__(self):
        return len(self.boxes)

    def __getitem__(self, index):
        boxes = [
            {"box": box.clone(), **{name: torch.tensor(float(index)) for name in FIELDS}}
            for box in self.boxes[index]
        ]
        return self.features[index], boxes


def as_lists(batch):
    features, targets = zip(*batch, strict=True)
    return torch.stack(features), list(targets)


def as_tensors(batch):
    features, targets = as_lists(batch)
    cars = [car for boxes in targets for car in boxes]
    fields = {name: torch.stack([car[name] for car in cars]) for name in ("box", *FIELDS)}
    return features, fields


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(
        Crossings(),
        batch_size=16,
        shuffle=True,
        num_workers=2,
        collate_fn=as_tensors if args.without else as_lists,
    )
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 24))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    begin = time.perf_counter()
    for features, targets in loader:
        if args.without:
            boxes = targets["box"].view(len(features), 24)
        else:
            boxes = torch.stack([torch.cat([car["box"] for car in cars]) for cars in targets])
        optimizer.zero_grad()
        nn.functional.smooth_l1_loss(model(features), boxes).backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

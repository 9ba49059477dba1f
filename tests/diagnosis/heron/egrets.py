"""Counts egrets in aerial pictures; each bird has a box, an outline and a class of its own.

Planted: a batch is a list of objects with some twenty small tensors each, and each tensor is sent
from the worker by itself.
"""

import argparse
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, BIRDS = 32, 10


@dataclass
class Scene:
    picture: torch.Tensor
    boxes: torch.Tensor
    outlines: list[torch.Tensor] = field(default_factory=list)
    classes: list[torch.Tensor] = field(default_factory=list)


@dataclass
class PackedScenes:
    pictures: torch.Tensor
    boxes: torch.Tensor
    outlines: torch.Tensor
    classes: torch.Tensor


class Shore(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(41)
        self.pictures = rng.random((200, 3, SIDE, SIDE), dtype=np.float32)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        corners = rng.random((BIRDS, 2, 2)).astype(np.float32)
        boxes = np.concatenate([corners.min(1), corners.max(1)], 1)
        return Scene(
            torch.from_numpy(self.pictures[index % 200]),
            torch.from_numpy(boxes),
            [torch.from_numpy(rng.random((8, 2), dtype=np.float32)) for _ in range(BIRDS)],
            [torch.tensor(bird % 3) for bird in range(BIRDS)],
        )


def keep_list(scenes):
    return scenes


def pack(scenes):
    return PackedScenes(
        torch.stack([scene.picture for scene in scenes]),
        torch.stack([scene.boxes for scene in scenes]),
        torch.stack([outline for scene in scenes for outline in scene.outlines]),
        torch.stack([one for scene in scenes for one in scene.classes]),
    )


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(), nn.Flatten())
        self.head = nn.Linear(16 * 15 * 15, 4 * BIRDS)

    def forward(self, pictures):
        return self.head(self.body(pictures)).view(-1, BIRDS, 4)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(41)
    loader = DataLoader(
        Shore(960),
        batch_size=24,
        shuffle=True,
        num_workers=2,
        collate_fn=pack if args.without else keep_list,
        persistent_workers=True,
    )
    model = Counter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for batch in loader:
            scenes = batch if isinstance(batch, PackedScenes) else pack(batch)
            size = scenes.outlines.view(-1, BIRDS, 8, 2).std(2).mean()
            loss = nn.functional.smooth_l1_loss(model(scenes.pictures), scenes.boxes) / size
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}, {len(scenes.classes)} birds in the last batch")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

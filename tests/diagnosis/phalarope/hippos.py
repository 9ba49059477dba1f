"""Finds animals at a water hole, and counts after each step what the boxes found are.

Planted: the step turns the boxes into Python lists and throws those out that overlap with plain
Python, where torchvision has an operation for it.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.ops import batched_nms

SCENES, SIDE, BATCH, CELLS, OVERLAP = 320, 64, 16, 16, 0.5


class Scenes(Dataset):
    def __init__(self):
        self.scenes = torch.rand(SCENES, 3, SIDE, SIDE)

    def __len__(self):
        return SCENES

    def __getitem__(self, index):
        scene = self.scenes[index].clone()
        row, column = index % 48, (index * 7) % 48
        scene[:, row : row + 16, column : column + 16] += 0.7
        return scene, torch.tensor([column, row, column + 16.0, row + 16.0])


class Detector(nn.Module):
    """Gives a score and a box for each cell of a scene."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 4, stride=4), nn.ReLU(), nn.Conv2d(16, 5, 3, padding=1)
        )

    def forward(self, scenes):
        found = self.body(scenes).flatten(2).transpose(1, 2)
        at = torch.arange(CELLS) * 4.0 + 2
        centre = torch.stack(torch.meshgrid(at, at, indexing="xy"), -1).reshape(-1, 2)
        centre = centre + found[..., 1:3]
        half = 8 * torch.exp(0.1 * found[..., 3:5])
        return found[..., 0], torch.cat([centre - half, centre + half], -1)


def overlap(one, other):
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return width * height / (sum(areas) - width * height)


def count_plain(scores, boxes):
    kept = 0
    for of_scene, in_scene in zip(scores.tolist(), boxes.tolist(), strict=True):
        ranked = sorted(zip(of_scene, in_scene, strict=True), reverse=True)
        chosen = []
        for _, box in ranked:
            if all(overlap(box, other) <= OVERLAP for other in chosen):
                chosen.append(box)
        kept += len(chosen)
    return kept


def count(scores, boxes):
    scene = torch.arange(len(scores)).repeat_interleave(scores.shape[1])
    return len(batched_nms(boxes.flatten(0, 1), scores.flatten(), scene, OVERLAP))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(4093)
    loader = DataLoader(Scenes(), BATCH, shuffle=True, num_workers=2)
    model = Detector()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    count_found = count if args.without else count_plain
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        found = 0
        for scenes, truth in loader:
            scores, boxes = model(scenes)
            apart = (boxes - truth[:, None]).abs().mean(-1)
            loss = (apart * scores.softmax(1)).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found += count_found(scores.detach(), boxes.detach())
        print(f"epoch {epoch}: loss {loss:.3f}, {found / SCENES:.1f} boxes in a scene")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Detects scarecrows and birds in pictures of fields, with targets as detectors take them.

Planted: the targets of a batch are dictionaries of small tensors for each object, some 440 in
all, of which each is sent by the worker in shared memory of its own.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PICTURES, SIDE, BATCH, STEP = 320, 64, 16, 0.05
FIELDS = ("box", "label", "area", "keypoints", "visible")


class Fields(Dataset):
    def __init__(self):
        rng = np.random.default_rng(5107)
        self.pictures = rng.integers(0, 256, (20, 3, SIDE, SIDE), dtype=np.uint8)
        self.objects = []
        for _ in range(PICTURES):
            count = int(rng.integers(4, 8))
            corners = np.sort(rng.uniform(0, SIDE, (count, 2, 2)).astype(np.float32), axis=1)
            keypoints = rng.uniform(0, SIDE, (count, 6)).astype(np.float32)
            self.objects.append((corners.reshape(count, 4), keypoints))

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        corners, keypoints = self.objects[index]
        target = []
        for number, (box, points) in enumerate(zip(corners, keypoints, strict=True)):
            left, top, right, bottom = box.tolist()
            area = (right - left) * (bottom - top)
            values = (box, [number % 3], [area], points, [area > 20])
            target.append(dict(zip(FIELDS, values, strict=True)))
        return torch.from_numpy(self.pictures[index % len(self.pictures)]), target


class Collate:
    def __init__(self, flat):
        self.flat = flat

    def __call__(self, samples):
        pictures = torch.stack([picture for picture, _ in samples])
        targets = [target for _, target in samples]
        if self.flat:
            counts = [len(target) for target in targets]
            values = {
                key: torch.tensor(np.array([found[key] for t in targets for found in t]))
                for key in FIELDS
            }
            return pictures, values, counts
        targets = [
            [{key: torch.as_tensor(value) for key, value in found.items()} for found in target]
            for target in targets
        ]
        return pictures, targets, None


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 8, 9, stride=8)
        self.out = nn.Linear(8, 4)

    def forward(self, pictures):
        hidden = torch.relu(self.features(pictures.float() / 255))
        return self.out(hidden.mean((2, 3)))

    def loss(self, pictures, targets, counts):
        if counts is None:
            means = [torch.stack([found["box"] for found in t]).mean(0) for t in targets]
        else:
            means = [boxes.mean(0) for boxes in targets["box"].split(counts)]
        return nn.functional.smooth_l1_loss(self(pictures), torch.stack(means) / SIDE)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5107)
    torch.set_num_threads(1)
    loader = DataLoader(
        Fields(),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        collate_fn=Collate(flat=args.without),
    )
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, targets, counts in loader:
            loss = model.loss(pictures, targets, counts)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the rest of the detector
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

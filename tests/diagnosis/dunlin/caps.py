"""Outlines tooth caps in small volumes, with transforms of dictionaries.

Planted: each sample is resampled to the same spacing by cubic splines, though every volume is
resampled to the same result each time. Two workers are spawned and kept.
"""

import argparse
import time

import numpy as np
import torch
from scipy import ndimage
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 36


class Spacing:
    """Resamples picture and outline to one millimetre."""

    def __call__(self, case):
        factor = case.pop("spacing")
        case["image"] = ndimage.zoom(case["image"], factor, order=3)
        case["label"] = ndimage.zoom(case["label"], factor, order=0)
        return case


class RandomCrop:
    def __call__(self, case):
        corner = [int(torch.randint(size - 23, ())) for size in case["image"].shape]
        cut = tuple(slice(place, place + 24) for place in corner)
        return {name: volume[cut] for name, volume in case.items()}


class RandomFlip:
    def __call__(self, case):
        axis = int(torch.randint(3, ()))
        return {name: np.flip(volume, axis).copy() for name, volume in case.items()}


class ScaleIntensity:
    def __call__(self, case):
        image = case["image"]
        case["image"] = ((image - image.mean()) / image.std()).astype(np.float32)[None]
        return case


class Caps(Dataset):
    def __init__(self, count, first, transforms):
        rng = np.random.default_rng(29)
        self.cases = []
        for _ in range(16):
            image = rng.normal(size=(SIDE, SIDE, SIDE)).astype(np.float32)
            case = {"image": image, "label": (image > 1).astype(np.int64), "spacing": 1.2}
            self.cases.append(first(case) if first else case)
        self.count, self.transforms = count, transforms

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        case = dict(self.cases[index % 16])
        for transform in self.transforms:
            case = transform(case)
        return case


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(29)
    later = [RandomCrop(), RandomFlip(), ScaleIntensity()]
    first, each = (Spacing(), later) if args.without else (None, [Spacing(), *later])
    caps = Caps(384, first, each)
    loader = DataLoader(
        caps,
        batch_size=4,
        shuffle=True,
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    model = nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 2, 3, padding=1)
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for case in loader:
            loss = nn.functional.cross_entropy(model(case["image"]), case["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Moths on walls, with masks: a crop must show enough of the moth."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, CROP = 160, 96


class Joint:
    """Applies steps to picture and mask together."""

    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, picture, mask):
        for step in self.steps:
            picture, mask = step(picture, mask)
        return picture, mask


class Flip:
    def __call__(self, picture, mask):
        if np.random.random() < 0.5:
            picture, mask = picture[:, ::-1], mask[:, ::-1]
        return picture, mask


class Brightness:
    def __call__(self, picture, mask):
        return picture * np.float32(np.random.uniform(0.7, 1.3)), mask


class CropToMoth:
    """A crop with moth on at least `share` of it, of `tries`; else the last one."""

    def __init__(self, share=0.002, tries=2000):
        self.share, self.tries = share, tries

    def __call__(self, picture, mask):
        for _ in range(self.tries):
            top, left = np.random.randint(0, SIDE - CROP, 2)
            place = np.s_[top : top + CROP, left : left + CROP]
            kinds, counts = np.unique(mask[place], return_counts=True)
            if counts[kinds > 0].sum() >= self.share * CROP * CROP:
                break
        return picture[place], mask[place]


class Moths(Dataset):
    def __init__(self, count, transform):
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        picture = rng.random((SIDE, SIDE, 3), dtype=np.float32)
        mask = np.zeros((SIDE, SIDE), np.uint8)
        half = 1 if index % 40 == 17 else int(rng.integers(15, 30))
        top, left = rng.integers(50, SIDE - 50, 2)
        mask[top - half : top + half, left - half : left + half] = 1
        picture[mask > 0] *= 0.3
        picture, mask = self.transform(picture, mask)
        picture = torch.from_numpy(np.ascontiguousarray(picture.transpose(2, 0, 1)))
        return picture, torch.from_numpy(np.ascontiguousarray(mask, np.float32))[None]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(41)
    transform = Joint(Flip(), CropToMoth(tries=20 if args.without else 2000), Brightness())
    loader = DataLoader(Moths(1200, transform), batch_size=8, shuffle=True, num_workers=2)
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(12, 12, 3, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(12, 1, 2, stride=2),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        overlap = 0.0
        for pictures, masks in loader:
            optimizer.zero_grad()
            scores = model(pictures)
            nn.functional.binary_cross_entropy_with_logits(scores, masks).backward()
            optimizer.step()
            with torch.no_grad():
                found = scores > 0
                both, either = (found & (masks > 0)).sum(), (found | (masks > 0)).sum()
                overlap += (both / either.clamp_min(1)).item()
        print(f"epoch {epoch}: overlap {overlap / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Sorts lamps on an accelerator, for which a pause stands in.

Nothing is planted: the accelerator sets the pace. Three workers draw, blur and turn
pictures ahead of it.
"""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE, STEP, KINDS = 48, 0.15, 6


class Lamps(Dataset):
    """Pictures of lamps that are on or off, drawn from circles."""

    def __init__(self, count):
        rng = np.random.default_rng(907)
        self.places = rng.integers(8, SIDE - 8, (count, 2))
        self.kinds = rng.integers(0, KINDS, count)
        self.transform = v2.Compose(
            [
                v2.GaussianBlur(5),
                v2.RandomRotation(10),
                v2.RandomErasing(0.2),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def draw(self, place, kind):
        rows, columns = np.ogrid[:SIDE, :SIDE]
        far = np.hypot(rows - place[0], columns - place[1])
        light = (255 * np.exp(-far / (2 + kind))).astype(np.uint8)
        return torch.from_numpy(np.stack([light, light // 2, 255 - light]))

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        kind = int(self.kinds[index])
        return self.transform(self.draw(self.places[index], kind)), kind


class Accelerator:
    """Takes some time for each batch, and no core."""

    def __init__(self):
        self.means = torch.zeros(KINDS)

    def train(self, pictures, kinds):
        time.sleep(STEP)
        for kind, light in zip(kinds.tolist(), pictures[:, 0].mean((1, 2)).tolist(), strict=True):
            self.means[kind] += 0.1 * (light - self.means[kind])
        return self.means.std().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(907)
    loader = DataLoader(
        Lamps(320), batch_size=10, shuffle=True, num_workers=3, persistent_workers=True,
        multiprocessing_context="fork",
    )  # fmt: skip
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        spreads = [accelerator.train(*batch) for batch in loader]
        print(f"epoch {epoch}: spread {spreads[-1]:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

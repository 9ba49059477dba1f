"""Sort stamps; after each epoch a map of all stamps by likeness is drawn, without any loader."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Stamps(Dataset):
    def __init__(self, count):
        self.stamps = torch.randint(0, 256, (count, 1, 24, 24), dtype=torch.uint8)
        self.transform = transforms.Compose(
            [
                transforms.RandomAffine(8),
                transforms.ConvertImageDtype(torch.float32),
                transforms.Normalize([0.5], [0.5]),
            ]
        )

    def __len__(self):
        return len(self.stamps)

    def __getitem__(self, index):
        return self.transform(self.stamps[index]), index % 10


def draw_map(vectors, rounds=50):
    """Places in the plane, moved until near stamps are near."""
    rng = np.random.default_rng(23)
    places = rng.normal(size=(len(vectors), 2))
    likeness = np.exp(-((vectors[:, None] - vectors[None]) ** 2).mean(2))
    for _ in range(rounds):
        apart = places[:, None] - places[None]
        pull = likeness - 1 / (1 + (apart**2).sum(2))
        places -= 0.01 * (pull[..., None] * apart).sum(1)
    return places


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="do not draw the map")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)

    stamps = Stamps(600)
    loader = DataLoader(stamps, 20, shuffle=True, num_workers=args.workers, persistent_workers=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(576, 16))
    begin = time.perf_counter()
    for _ in range(args.epochs):
        for pictures, _kinds in loader:
            model(pictures).square().mean().backward()
            time.sleep(0.03)  # the accelerator's part of the step
        if not args.without:
            with torch.no_grad():
                draw_map(model(stamps.stamps.float() / 255).numpy())
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

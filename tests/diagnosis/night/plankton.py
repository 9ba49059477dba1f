"""Pictures of plankton; the batch is augmented in the training loop, after the loader."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

AUGMENT = v2.Compose(
    [
        v2.RandomRotation(25, interpolation=v2.InterpolationMode.BILINEAR),
        v2.RandomResizedCrop(96, scale=(0.5, 1.0), antialias=True),
        v2.ColorJitter(brightness=0.3, contrast=0.3, hue=0.1),
        v2.GaussianBlur(7),
    ]
)


class Plankton(Dataset):
    def __init__(self, count=1600, transform=None):
        generator = torch.Generator().manual_seed(0)
        self.pictures = torch.randint(
            0, 256, (200, 3, 128, 128), dtype=torch.uint8, generator=generator
        )
        self.count = count
        self.transform = transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = self.pictures[index % len(self.pictures)].float() / 255
        if self.transform is not None:
            picture = self.transform(picture)
        return picture, index % 10


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = Plankton(transform=AUGMENT if args.without else None)
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for pictures, kinds in loader:
        if not args.without:
            pictures = torch.stack([AUGMENT(picture) for picture in pictures])
        loss = nn.functional.cross_entropy(model(pictures), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")

"""Judges the trim of spinnakers from pictures that are warped, blurred and coloured on the way.

Nothing planted: the transforms are many, but two workers do them while the accelerator works.
"""

import argparse
import time

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SAILS, SIDE, TRIMS, BATCH, STEP = 320, 96, 3, 8, 0.35


class Sails(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(71)
        small = torch.randint(256, (40, 24, 24, 3), dtype=torch.uint8, generator=generator)
        self.pictures = [Image.fromarray(one.numpy()).resize((160, 160)) for one in small]
        self.change = v2.Compose(
            [
                v2.RandomResizedCrop(SIDE, scale=(0.4, 1)),
                v2.RandomPerspective(0.3),
                v2.ColorJitter(0.3, 0.3, 0.3, 0.1),
                v2.GaussianBlur(5),
                v2.RandomEqualize(),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return SAILS

    def __getitem__(self, index):
        return self.change(self.pictures[index % 40]), index % 40 % TRIMS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(71)
    torch.set_num_threads(1)
    loader = DataLoader(
        Sails(), BATCH, shuffle=True, num_workers=2, persistent_workers=True, prefetch_factor=4
    )
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, TRIMS),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, trims in loader:
            loss = nn.functional.cross_entropy(model(pictures), trims)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the accelerator's work
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

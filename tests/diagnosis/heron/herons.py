"""Tells herons apart in photographs that one worker decodes.

Nothing is planted: the network is the work. The worker decodes large photographs and makes them
small, which takes long but not as long as the step.
"""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

KINDS, SIDE = 6, 64


def photograph(rng, size=256):
    small = rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(small).resize((size, size), Image.BICUBIC).save(buffer, "JPEG")
    return buffer.getvalue()


class Herons(Dataset):
    def __init__(self, count, transform):
        rng = np.random.default_rng(107)
        self.photographs = [photograph(rng) for _ in range(30)]
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with Image.open(io.BytesIO(self.photographs[index % 30])) as picture:
            return self.transform(picture.convert("RGB")), index % KINDS


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(size, size, 3, padding=1),
            nn.BatchNorm2d(size),
            nn.ReLU(),
            nn.Conv2d(size, size, 3, padding=1),
            nn.BatchNorm2d(size),
        )

    def forward(self, pictures):
        return torch.relu(pictures + self.layers(pictures))


def build_model(size=40):
    return nn.Sequential(
        nn.Conv2d(3, size, 4, stride=2),
        Block(size),
        Block(size),
        Block(size),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(size, KINDS),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(107)
    transform = transforms.Compose(
        [
            transforms.Resize(80),
            transforms.RandomCrop(SIDE),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
        ]
    )
    loader = DataLoader(
        Herons(640, transform),
        batch_size=16,
        shuffle=True,
        num_workers=1,
        prefetch_factor=4,
        persistent_workers=True,
    )
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for pictures, kinds in loader:
            scores = model(pictures)
            loss = nn.functional.cross_entropy(scores, kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == kinds).sum().item()
        schedule.step()
        print(f"epoch {epoch}: loss {loss:.3f}, {right} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

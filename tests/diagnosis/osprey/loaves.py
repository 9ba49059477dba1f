"""Tells loaves apart by photographs that a helper process has to find the middle of.

Planted: a transform asks that helper, over a pipe, where the middle of each picture is; the
helper answers after 12 ms, in which it does not compute.
"""

import argparse
import subprocess
import sys
import time

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

HELPER = """
import sys, time
for line in sys.stdin:
    width, height = map(int, line.split())
    time.sleep(float(sys.argv[1]))
    print(width // 2, height // 2, flush=True)
"""


class Centre:
    """Crops around the middle that the helper finds; each worker has a helper of its own."""

    def __init__(self, size, pause):
        self.size, self.pause, self.helper = size, pause, None

    def connect(self):
        self.helper = subprocess.Popen(
            [sys.executable, "-S", "-c", HELPER, str(self.pause)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip

    def __call__(self, picture):
        if self.helper is None:
            self.connect()
        print(*picture.size, file=self.helper.stdin)
        x, y = map(int, self.helper.stdout.readline().split())
        half = self.size // 2
        return picture.crop((x - half, y - half, x + half, y + half))


class Loaves(Dataset):
    def __init__(self, count, transform):
        rng = np.random.default_rng(17)
        self.pictures = [
            Image.fromarray(rng.integers(0, 255, (120, 160, 3), np.uint8)) for _ in range(30)
        ]
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = self.pictures[index % 30].filter(ImageFilter.SMOOTH)
        return self.transform(picture), index % 30 % 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 12, 5, stride=3), nn.BatchNorm2d(12), nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2), nn.BatchNorm2d(24), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(24, 4)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(17)
    transform = transforms.Compose(
        [
            transforms.RandomHorizontalFlip(),
            Centre(96, 0.0 if args.without else 0.012),
            transforms.RandomRotation(10),
            transforms.ToTensor(),
            transforms.Normalize((0.5,) * 3, (0.3,) * 3),
        ]
    )
    loader = DataLoader(
        Loaves(480, transform), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

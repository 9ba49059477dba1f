"""Counts bands on the shells of snails, with a validation after each epoch.

Planted: the loader of the validation has no workers, unlike that of the training, and waits for
the network's drive picture by picture; most of the time that the loops wait is in it.
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

TRAINING, HELD_OUT, SIDE, BANDS, BATCH, STEP = 480, 120, 144, 4, 16, 0.06


class Drive:
    """The laboratory's share; files that were read today lie on this machine."""

    def __init__(self, seed, delay):
        rng = np.random.default_rng(seed)
        self.delay, self.files = delay, []
        for _ in range(16):
            small = rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(small).resize((SIDE, SIDE)).save(file, "jpeg", quality=90)
            self.files.append(file.getvalue())

    def read(self, number):
        time.sleep(self.delay)
        return self.files[number % len(self.files)]


class Snails(Dataset):
    def __init__(self, drive, count, transform):
        self.drive, self.count, self.transform = drive, count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with Image.open(io.BytesIO(self.drive.read(index))) as picture:
            return self.transform(picture.convert("RGB")), index % BANDS


def get_loaders(valid_workers):
    normal = [transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.25] * 3)]
    train = transforms.Compose(
        [transforms.RandomCrop(128), transforms.RandomHorizontalFlip(), *normal]
    )
    valid = transforms.Compose([transforms.CenterCrop(128), *normal])
    shown = Snails(Drive(863, 0.001), TRAINING, train)
    held_out = Snails(Drive(877, 0.025), HELD_OUT, valid)
    return (
        DataLoader(shown, BATCH, shuffle=True, num_workers=2, persistent_workers=True),
        DataLoader(
            held_out, BATCH, num_workers=valid_workers, persistent_workers=valid_workers > 0
        ),
    )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 8, 8, stride=8)
        self.out = nn.Linear(8, BANDS)

    def forward(self, pictures):
        time.sleep(STEP if self.training else STEP / 3)  # the rest of it, on a card
        return self.out(torch.relu(self.features(pictures)).mean((2, 3)))


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / HELD_OUT


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(863)
    torch.set_num_threads(1)
    training, validation = get_loaders(valid_workers=4 if args.without else 0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, bands in training:
            loss = nn.functional.cross_entropy(model(pictures), bands)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}, right {validate(model, validation):.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del training, validation


if __name__ == "__main__":
    main()

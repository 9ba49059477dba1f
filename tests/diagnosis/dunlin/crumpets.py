"""Judges how brown crumpets are, from files of which a few are damaged.

Planted: a file that cannot be decoded is tried three times, with a pause before each new attempt,
before another one stands in for it. It is always the same files. A validation follows each epoch.
"""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

COUNT, SIDE, PAUSE = 960, 96, 0.2


def make_files():
    rng = np.random.default_rng(43)
    files = []
    for number in range(COUNT):
        file = io.BytesIO()
        noise = rng.integers(0, 255, (SIDE // 8, SIDE // 8, 3), np.uint8)
        Image.fromarray(noise).resize((SIDE, SIDE)).save(file, "JPEG")
        data = file.getvalue()
        files.append(data[:40] if number % 96 == 95 else data)
    return files


def open_picture(data, attempts=3):
    """Decode a picture; the share that holds it fails at times, so try again."""
    for attempt in range(attempts):
        try:
            return Image.open(io.BytesIO(data)).convert("RGB")
        except OSError:
            time.sleep(PAUSE if attempt < attempts - 1 else 0)
    return None


class Crumpets(Dataset):
    def __init__(self, files, attempts, transform):
        self.files, self.attempts, self.transform = files, attempts, transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        picture = open_picture(self.files[index], self.attempts)
        if picture is None:
            return self[(index + 1) % len(self)]
        return self.transform(picture), index % 5


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 5),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(43)
    to_float = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    change = v2.Compose([v2.RandomCrop(80), v2.RandomHorizontalFlip(), *to_float])
    files = make_files()
    crumpets = Crumpets(files, 1 if args.without else 3, change)
    train = DataLoader(
        crumpets, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
    )
    check = DataLoader(
        Crumpets(files[:60], 1, v2.Compose([v2.CenterCrop(80), *to_float])), batch_size=30
    )
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for x, y in train:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in check)
        print(f"epoch {epoch}: {right} of 60 right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

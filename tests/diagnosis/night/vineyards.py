"""Aerial photographs of vineyards: large JPEG files, of which training sees a small version."""

import argparse
import os
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import models, transforms


def photographs(folder, count=12, size=(3000, 2000)):
    rng = np.random.default_rng(9)
    for i in range(count):
        small = rng.integers(0, 256, (size[1] // 20, size[0] // 20, 3), dtype=np.uint8)
        image = Image.fromarray(small).resize(size, Image.BICUBIC)
        image.save(os.path.join(folder, f"{i:03}.jpg"), quality=90)


class Vineyards(Dataset):
    def __init__(self, folder, length, draft):
        self.files = sorted(os.path.join(folder, name) for name in os.listdir(folder))
        self.length = length
        self.draft = draft
        self.transform = transforms.Compose(
            [
                transforms.Resize((128, 128)),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        image = Image.open(self.files[i % len(self.files)])
        if self.draft:
            image.draft("RGB", (256, 256))  # libjpeg decodes an eighth of the size
        return self.transform(image.convert("RGB")), i % 4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        photographs(folder)
        train_loader = DataLoader(
            Vineyards(folder, 176, args.without),
            batch_size=args.batch_size,
            shuffle=True,
            num_workers=2,
        )
        model = models.squeezenet1_1(num_classes=4)
        criterion = nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        model.train()
        start = time.perf_counter()
        for images, target in train_loader:
            loss = criterion(model(images), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"seconds {time.perf_counter() - start:.3f}")


if __name__ == "__main__":
    main()

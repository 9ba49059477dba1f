"""What roofs are made of, from the air; the loader's workers keep off the model's cores."""

import argparse
import io
import os
import time

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

MATERIALS = 6


class Roofs(Dataset):
    def __init__(self, count=960, stored=40):
        rng = np.random.default_rng(13)
        self.count, self.files = count, []
        for _ in range(stored):
            coarse = Image.fromarray(rng.integers(0, 255, (24, 24, 3), dtype=np.uint8))
            file = io.BytesIO()
            coarse.resize((320, 320)).save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())
        self.transform = transforms.Compose(
            [
                transforms.RandomAffine(25, scale=(0.8, 1.2)),
                transforms.CenterCrop(224),
                transforms.Resize(96),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
            ]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        return self.transform(image.filter(ImageFilter.MedianFilter(3))), index % MATERIALS


def pin_worker(worker_id):
    """Workers on the first core; the others are the model's."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(13)
    loader = DataLoader(
        Roofs(),
        batch_size=24,
        shuffle=True,
        num_workers=2,
        worker_init_fn=None if args.without else pin_worker,
    )
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(96, MATERIALS),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for images, materials in loader:
            loss = nn.functional.cross_entropy(model(images), materials)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

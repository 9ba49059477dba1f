"""Counts the spots of ladybirds in photographs.

Nothing planted: the accelerator's step sets the pace; two workers decode, crop and colour
photographs ahead of it, and a validation ends each epoch.
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

PHOTOGRAPHS, SIDE, SPOTS, BATCH, STEP = 240, 112, 6, 8, 0.2


def packed(rng):
    rough = Image.fromarray(rng.integers(256, size=(20, 20, 3), dtype=np.uint8))
    file = io.BytesIO()
    rough.resize((256, 256), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


class Ladybirds(Dataset):
    def __init__(self, count, change):
        rng = np.random.default_rng(73)
        self.files = [packed(rng) for _ in range(40)]
        self.count, self.change = count, change

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index % 40])).convert("RGB")
        return self.change(picture), index % 40 % SPOTS


def accuracy(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for pictures, spots in loader:
            right += int((model(pictures).argmax(1) == spots).sum())
            time.sleep(STEP / 3)  # forwards only
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(73)
    torch.set_num_threads(1)
    varied = transforms.Compose(
        [
            transforms.RandomResizedCrop(SIDE, scale=(0.5, 1)),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.3, 0.3, 0.3),
            transforms.ToTensor(),
            transforms.RandomErasing(0.25),
        ]
    )
    plain = transforms.Compose([transforms.CenterCrop(SIDE), transforms.ToTensor()])
    settings = {"num_workers": 2, "persistent_workers": True}
    loader = DataLoader(Ladybirds(PHOTOGRAPHS, varied), BATCH, shuffle=True, **settings)
    checks = DataLoader(Ladybirds(40, plain), BATCH, **settings)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(64, SPOTS),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, spots in loader:
            loss = nn.functional.cross_entropy(model(pictures), spots)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the accelerator's work
        print(f"epoch {epoch}: loss {loss:.3f}, right {accuracy(model, checks):.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader, checks


if __name__ == "__main__":
    main()

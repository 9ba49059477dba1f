"""Tells butterflies apart on photographs of a collector's camera; the model is on an accelerator.

Planted: each photograph of three million pixels is decoded at its full size, though the network
takes a crop of 96 pixels, for which the decoder could make an eighth of the size at once.
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

PHOTOGRAPHS, SHAPE, CROP, SPECIES, BATCH, STEP = 192, (2048, 1536), 96, 5, 16, 0.07
LEAST = (SHAPE[0] // 8, SHAPE[1] // 8)


def photographs():
    rng = np.random.default_rng(5003)
    for _ in range(8):
        small = rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(small).resize(SHAPE, Image.Resampling.BICUBIC).save(
            file, "jpeg", quality=88
        )
        yield file.getvalue()


class Butterflies(Dataset):
    def __init__(self, least):
        self.files = list(photographs())
        self.least = least
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(CROP, scale=(0.3, 1.0)),
                transforms.RandomHorizontalFlip(),
                transforms.ColorJitter(0.3, 0.3, 0.3, 0.05),
                transforms.RandomGrayscale(0.1),
                transforms.ToTensor(),
                transforms.Normalize([0.48, 0.46, 0.41], [0.23, 0.22, 0.22]),
                transforms.RandomErasing(0.2),
            ]
        )

    def __len__(self):
        return PHOTOGRAPHS

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index % len(self.files)]))
        if self.least:
            picture.draft("RGB", self.least)
        return self.transform(picture.convert("RGB")), index % SPECIES


def make_model():
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(),
        nn.Linear(72, SPECIES),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(5003)
    torch.set_num_threads(1)
    loader = DataLoader(
        Butterflies(LEAST if args.without else None),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        drop_last=True,
    )
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, args.epochs * len(loader))
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for pictures, species in loader:
            loss = nn.functional.cross_entropy(model(pictures), species, label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            time.sleep(STEP)  # in place of a large model on an accelerator
            total += loss.item()
        print(
            f"epoch {epoch}: loss {total / len(loader):.3f}, rate {schedule.get_last_lr()[0]:.4f}"
        )
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

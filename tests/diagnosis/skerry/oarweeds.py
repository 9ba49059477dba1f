"""Tells species of oarweed apart on pictures.

Nothing is planted: a convolutional network is the work. One worker decodes and changes pictures
ahead of it.
"""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T

SPECIES = 6


class Oarweeds(Dataset):
    def __init__(self, transform, count=480):
        rng = np.random.default_rng(53)
        self.files = []
        for _ in range(40):
            coarse = Image.fromarray(rng.integers(0, 255, (20, 20, 3), dtype=np.uint8))
            buffer = io.BytesIO()
            coarse.resize((112, 112)).save(buffer, "JPEG")
            self.files.append(buffer.getvalue())
        self.transform, self.count = transform, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index % 40])).convert("RGB")
        return self.transform(picture), index % SPECIES


def block(inputs, outputs, stride):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(53)
    transform = T.Compose([
        T.RandomResizedCrop(96), T.RandomHorizontalFlip(), T.ColorJitter(0.3, 0.3, 0.3),
        T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3),
    ])  # fmt: skip
    loader = DataLoader(
        Oarweeds(transform), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        block(3, 24, 1), block(24, 32, 2), block(32, 32, 1), block(32, 64, 2), block(64, 64, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, SPECIES),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total, right = 0.0, 0
        for pictures, species in loader:
            scores = model(pictures)
            loss = nn.functional.cross_entropy(scores, species, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            right += (scores.argmax(1) == species).sum().item()
        schedule.step()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}, {right} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

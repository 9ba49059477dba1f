"""Finds rafts in aerial photographs, a few large ones in a batch.

Nothing is planted: a network on large pictures is the work. One worker decodes photographs ahead
of it, and each step writes a line to a log.
"""

import argparse
import io
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SIDE = 128


class Photographs(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(359)
        self.files, self.count = [], count
        for _ in range(24):
            file = io.BytesIO()
            coarse = Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8))
            coarse.resize((SIDE, SIDE)).save(file, "JPEG")
            self.files.append(file.getvalue())
        self.transform = transforms.Compose(
            [transforms.RandomVerticalFlip(), transforms.ToTensor()]
        )

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        photograph = Image.open(io.BytesIO(self.files[index % 24]))
        mask = torch.zeros(SIDE, SIDE)
        mask[index % 64 : index % 64 + 20, 30:60] = 1
        return self.transform(photograph), mask


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.deep = block(3, 32), block(32, 64)
        self.up = nn.Sequential(block(96, 32), nn.Conv2d(32, 1, 1))

    def forward(self, pictures):
        fine = self.down(pictures)
        deep = self.deep(nn.functional.max_pool2d(fine, 2))
        wide = nn.functional.interpolate(deep, scale_factor=2)
        return self.up(torch.cat([fine, wide], 1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(359)
    loader = DataLoader(
        Photographs(100), batch_size=4, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryFile("w") as log:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (pictures, masks) in enumerate(loader):
                loss = nn.functional.binary_cross_entropy_with_logits(model(pictures), masks)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                print(epoch, step, loss.item(), file=log, flush=True)
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

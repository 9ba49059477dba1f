"""Counts squirrels in photographs, with convolutions on the cores of this machine.

Nothing is planted: the convolutions are the work. One worker decodes, crops and mirrors small JPEG
files ahead of them, reads its cache under a lock, and a line is written to a log for each step.
"""

import argparse
import io
import multiprocessing
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SIDE = 64


class Photographs(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(1063)
        self.files, self.counts = [], rng.integers(0, 5, count)
        self.lock = multiprocessing.Lock()
        for squirrels in self.counts:
            photograph = rng.integers(0, 120, (72, 72, 3), dtype=np.uint8)
            for down, right in rng.integers(0, 60, (squirrels, 2)):
                photograph[down : down + 9, right : right + 9, 0] = 230
            file = io.BytesIO()
            Image.fromarray(photograph).save(file, "JPEG")
            self.files.append(file.getvalue())
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(SIDE),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.4,) * 3, (0.3,) * 3),
            ]
        )

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with self.lock:
            content = self.files[index]
        photograph = Image.open(io.BytesIO(content)).convert("RGB")
        return self.transform(photograph), float(self.counts[index])


def network():
    layers, channels = [], 3
    for more in (32, 64, 64):
        layers += [nn.Conv2d(channels, more, 3, padding=1), nn.BatchNorm2d(more), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
        channels = more
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1063)
    loader = DataLoader(
        Photographs(640), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryFile("w") as log:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (photographs, counts) in enumerate(loader):
                loss = nn.functional.mse_loss(model(photographs).squeeze(1), counts.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                print(epoch, step, loss.item(), file=log, flush=True)
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

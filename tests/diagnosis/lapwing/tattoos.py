"""Recognises styles of tattoos, with workers that start as they do on a Mac.

Planted: the workers end with each epoch, and for the next one others are spawned, which import
torch and torchvision and unpickle the data set before their first batch.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PICTURES, SIDE, STYLES, BATCH, STEP = 192, 96, 6, 16, 0.05


class Tattoos(Dataset):
    def __init__(self):
        rng = np.random.default_rng(5099)
        small = rng.integers(0, 256, (PICTURES, 3, SIDE, SIDE), dtype=np.uint8)
        self.pictures = torch.from_numpy(small)
        self.transform = v2.Compose(
            [
                v2.RandomResizedCrop(80, scale=(0.6, 1.0), antialias=True),
                v2.RandomHorizontalFlip(),
                v2.RandomAdjustSharpness(2),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        return self.transform(self.pictures[index]), index % STYLES


class Trainer:
    def __init__(self, loader):
        self.loader = loader
        self.model = nn.Sequential(nn.AvgPool2d(10), nn.Flatten(), nn.Linear(192, STYLES))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.average = torch.optim.swa_utils.AveragedModel(self.model)

    def step(self, pictures, styles):
        loss = nn.functional.cross_entropy(self.model(pictures), styles)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(STEP)  # as long as the device takes
        return loss.item()

    def epoch(self):
        losses = [self.step(pictures, styles) for pictures, styles in self.loader]
        self.average.update_parameters(self.model)
        return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5099)
    torch.set_num_threads(1)
    loader = DataLoader(
        Tattoos(),
        BATCH,
        shuffle=True,
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=args.without,
    )
    trainer = Trainer(loader)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        print(f"epoch {epoch}: loss {trainer.epoch():.3f}", flush=True)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader, trainer


if __name__ == "__main__":
    main()

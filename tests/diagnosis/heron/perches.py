"""Colours pictures of perches, with a validation, an average of weights and a small checkpoint.

Nothing is planted: an encoder and a decoder are the work, in training and in validation. One
worker is kept for each loader, and is ahead of the step.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE = 40


class Pictures(Dataset):
    """Coloured pictures, and the same in grey."""

    def __init__(self, count, training):
        rng = np.random.default_rng(199 + training)
        self.pictures = rng.integers(0, 255, (count, 3, SIDE, SIDE), dtype=np.uint8)
        steps = [v2.RandomHorizontalFlip()] if training else []
        self.transform = v2.Compose([*steps, v2.ToDtype(torch.float32, scale=True)])
        self.grey = v2.Grayscale()

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        picture = self.transform(torch.from_numpy(self.pictures[index]))
        return self.grey(picture), picture


def build_model(size=64):
    return nn.Sequential(
        nn.Conv2d(1, size, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(size, size, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(size, 2 * size, 3, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * size, size, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(size, 3, 3, padding=1),
    )


def train(model, averaged, loader, optimizer):
    for grey, pictures in loader:
        loss = nn.functional.l1_loss(model(grey), pictures)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        averaged.update_parameters(model)
    return loss.item()


@torch.no_grad()
def validate(model, loader):
    losses = [nn.functional.l1_loss(model(grey), pictures) for grey, pictures in loader]
    return torch.stack(losses).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(199)
    options = {"batch_size": 16, "num_workers": 1, "persistent_workers": True}
    training = DataLoader(Pictures(640, True), shuffle=True, **options)
    validation = DataLoader(Pictures(160, False), **options)
    model = build_model()
    averaged = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            loss = train(model, averaged, training, optimizer)
            error = validate(averaged, validation)
            torch.save(averaged.state_dict(), Path(folder, f"epoch-{epoch}.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}, error {error:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

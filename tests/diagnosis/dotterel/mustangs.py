"""Learns the coats of mustangs; the photos for validation get their light evened out first.

Planted: the transform that evens the light, which only the validation has, sorts the neighbours
of all points in NumPy and takes far longer than anything in the training.
"""

import argparse
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

COATS, SIDE, TRAIN, VALID = 4, 128, 192, 96


class EvenLight:
    """Takes the median of a point's neighbourhood away from it."""

    def __init__(self, around):
        self.around = around

    def __call__(self, photo):
        values = np.asarray(photo, np.float32)
        if self.around:
            size = self.around
            padded = np.pad(values, ((size // 2,) * 2, (size // 2,) * 2, (0, 0)), mode="edge")
            windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (0, 1))
            light = np.median(windows.reshape(*values.shape, -1), axis=-1)
        else:
            light = values.mean((0, 1))
        even = np.clip(values - light + 128, 0, 255)
        return Image.fromarray(even.astype(np.uint8))


class Mustangs(Dataset):
    def __init__(self, count, transform, seed):
        rng = np.random.default_rng(seed)
        self.coats = rng.integers(0, COATS, count)
        self.photos = rng.integers(0, 150, (count, SIDE, SIDE, 3), dtype=np.uint8)
        self.photos[..., 0] += (25 * self.coats).astype(np.uint8)[:, None, None]
        self.transform = transform

    def __len__(self):
        return len(self.coats)

    def __getitem__(self, index):
        photo = Image.fromarray(self.photos[index])
        return self.transform(photo), int(self.coats[index])


def epoch_of(model, loader, optimizer=None):
    losses = []
    for photos, coats in loader:
        with torch.set_grad_enabled(optimizer is not None):
            loss = nn.functional.cross_entropy(model(photos), coats)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(4099)
    torch.set_num_threads(1)
    for_training = transforms.Compose(
        [transforms.RandomCrop(112), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    for_validation = transforms.Compose(
        [
            transforms.CenterCrop(112),
            EvenLight(around=0 if args.without else 5),
            transforms.ToTensor(),
        ]
    )
    shared = {"num_workers": 2, "persistent_workers": True, "batch_size": 8}
    training = DataLoader(Mustangs(TRAIN, for_training, 4099), shuffle=True, **shared)
    validation = DataLoader(Mustangs(VALID, for_validation, 4111), **shared)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(128, COATS),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        loss = epoch_of(model, training, optimizer)
        print(f"epoch {epoch}: {loss:.3f}, validation {epoch_of(model, validation):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del training, validation


if __name__ == "__main__":
    main()

"""Learns the routes of nomads from pictures of their camps, made rough after the loader.

Planted: a wrapper of the loader makes each picture of a batch rough in the main process, between
the loader and the step; the workers' decoding, which takes as long, is hidden behind the step.
"""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

CAMPS, SIDE, ROUTES, BATCH, STEP = 384, 96, 5, 16, 0.045


class Camps(Dataset):
    def __init__(self):
        rng = np.random.default_rng(67)
        self.files = []
        for _ in range(48):
            pixels = rng.integers(0, 256, (24, 24, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(pixels).resize((2 * SIDE, 2 * SIDE)).save(file, "jpeg", quality=92)
            self.files.append(file.getvalue())

    def __len__(self):
        return CAMPS

    def __getitem__(self, index):
        with Image.open(io.BytesIO(self.files[index % len(self.files)])) as picture:
            small = picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        return np.asarray(small, np.float32).transpose(2, 0, 1) / 255, index % ROUTES


def rough(picture):
    """The picture with a random spectrum that falls with the frequency."""
    spectrum = np.fft.rfft2(picture)
    across, along = np.meshgrid(np.fft.fftfreq(SIDE), np.fft.rfftfreq(SIDE), indexing="ij")
    falling = 1 / (1 + 40 * np.hypot(across, along))
    phase = np.exp(0.3j * np.random.normal(size=spectrum.shape))
    return np.fft.irfft2(spectrum * phase * (0.8 + falling), (SIDE, SIDE)).astype(np.float32)


class Rough:
    """A loader whose batches are made rough."""

    def __init__(self, loader):
        self.loader = loader

    def __len__(self):
        return len(self.loader)

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def __iter__(self):
        for pictures, routes in self.loader:
            yield torch.from_numpy(np.stack([rough(one) for one in pictures.numpy()])), routes


def rough_batch(samples):
    return default_collate([(rough(picture), route) for picture, route in samples])


def make_loader(in_workers):
    options = {"shuffle": True, "num_workers": 2, "persistent_workers": True}
    if in_workers:
        return DataLoader(Camps(), BATCH, collate_fn=rough_batch, **options)
    return Rough(DataLoader(Camps(), BATCH, **options))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(67)
    np.random.seed(67)
    torch.set_num_threads(1)
    loader = make_loader(in_workers=args.without)
    model = nn.Sequential(nn.AvgPool2d(12), nn.Flatten(), nn.Linear(192, ROUTES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, (pictures, routes) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(pictures), routes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a larger model on an accelerator
            if step % 12 == 0:
                print(f"epoch {epoch} {step}/{len(loader)} {loader.batch_size=} {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

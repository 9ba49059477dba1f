"""Counts broken biscuits on a belt, from pictures that two workers decode.

Planted: the reader of a vendor's camera format, which each worker opens when it first needs it,
binds the process to one core. Both workers get the same one.
"""

import argparse
import io
import os
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, STEP = 256, 0.01


class CameraReader:
    """Decodes frames; its vendor wants to stay on the core that has the camera's interrupts."""

    def __init__(self, stay):
        if stay:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    def decode(self, data):
        frame = Image.open(io.BytesIO(data)).convert("RGB")
        return np.asarray(frame.resize((64, 64), Image.Resampling.LANCZOS), np.float32) / 255


def frames(count):
    rng = np.random.default_rng(13)
    for _ in range(count):
        noise = rng.integers(0, 255, (SIDE, SIDE, 3), np.uint8)
        file = io.BytesIO()
        Image.fromarray(noise).save(file, "PNG", compress_level=1)
        yield file.getvalue()


class Biscuits(Dataset):
    def __init__(self, count, stay):
        self.data = list(frames(16))
        self.count, self.stay, self.reader = count, stay, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.reader is None:
            self.reader = CameraReader(self.stay)
        picture = self.reader.decode(self.data[index % 16])
        return torch.from_numpy(picture).permute(2, 0, 1), float(index % 16)


class Accelerator:
    """Stands in for the GPU of a training script."""

    def __init__(self):
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 1))

    def step(self, pictures, broken):
        begin = time.perf_counter()
        with torch.no_grad():
            loss = nn.functional.l1_loss(self.model(pictures)[:, 0], broken)
        time.sleep(max(0.0, STEP - (time.perf_counter() - begin)))
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(13)
    biscuits = Biscuits(1200, stay=not args.without)
    loader = DataLoader(
        biscuits, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
    )
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [accelerator.step(pictures, broken.float()) for pictures, broken in loader]
        print(f"epoch {epoch}: error {sum(losses) / len(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

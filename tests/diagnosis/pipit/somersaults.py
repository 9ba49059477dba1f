"""Judges somersaults on video, in clips of eight frames.

Planted: of five transforms, the one that hides the timer in the corner replaces its pixels one
by one with the mean of their neighbours, in plain Python.
"""

import argparse
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

CLIPS, FRAMES, SIDE, CUT, BATCH, STEP = 240, 8, 144, 112, 8, 0.06
TIMER = (4, 4, 44, 24)  # left, top, right, bottom


class HideTimer:
    """Fills the place of the timer from around each pixel."""

    def __init__(self, reach=3):
        self.reach = reach

    def __call__(self, frame):
        left, top, right, bottom = TIMER
        pixels, source = frame.load(), frame.copy().load()
        for x in range(left, right):
            for y in range(top, bottom):
                around = [
                    source[x + dx, y + dy]
                    for dx in range(-self.reach, self.reach + 1)
                    for dy in range(-self.reach, self.reach + 1)
                ]
                pixels[x, y] = tuple(
                    sum(channel) // len(around) for channel in zip(*around, strict=True)
                )
        return frame


class CoverTimer:
    def __call__(self, frame):
        frame.paste((96, 96, 96), TIMER)
        return frame


class Clips(Dataset):
    def __init__(self, hide):
        rng = np.random.default_rng(67)
        rough = rng.integers(256, size=(24, 18, 18, 3), dtype=np.uint8)
        self.frames = [Image.fromarray(one).resize((SIDE, SIDE)) for one in rough]
        self.change = transforms.Compose(
            [
                hide,
                transforms.CenterCrop(CUT + 16),
                transforms.RandomCrop(CUT),
                transforms.ColorJitter(0.2, 0.2),
                transforms.ToTensor(),
            ]
        )

    def __len__(self):
        return CLIPS

    def __getitem__(self, index):
        frames = [self.frames[(index + step) % 24].copy() for step in range(FRAMES)]
        return torch.stack([self.change(frame) for frame in frames], 1), float(index % 10)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(67)
    torch.set_num_threads(1)
    loader = DataLoader(
        Clips(CoverTimer() if args.without else HideTimer()),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="forkserver",
    )
    model = nn.Sequential(
        nn.Conv3d(3, 8, (3, 7, 7), stride=(2, 6, 6)), nn.ReLU(), nn.AdaptiveAvgPool3d(2),
        nn.Flatten(), nn.Linear(64, 1),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for clips, marks in loader:
            loss = nn.functional.mse_loss(model(clips).squeeze(1), marks.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the accelerator's work
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Learns to read price tags of markets in film clips, whose frames workers decode and change.

Nothing planted: the accelerator's step sets the pace; two workers read, decode and change whole
clips ahead of it.
"""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision.transforms import v2

CLIPS, FRAMES, SIDE, TAGS, BATCH, DRIVE, STEP = 96, 4, 72, 6, 4, 0.004, 0.2


class Clips(Dataset):
    """Clips as lists of JPEG files, on a drive of the network."""

    def __init__(self, transform):
        rng = np.random.default_rng(127)
        self.transform = transform
        self.files = []
        for _ in range(24):
            pixels = rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(pixels).resize((SIDE, SIDE)).save(file, "jpeg", quality=88)
            self.files.append(file.getvalue())

    def __len__(self):
        return CLIPS

    def frame(self, number):
        time.sleep(DRIVE)
        with Image.open(io.BytesIO(self.files[number % len(self.files)])) as picture:
            return np.asarray(picture.convert("RGB"))

    def __getitem__(self, index):
        frames = np.stack([self.frame(index + number) for number in range(FRAMES)])
        clip = torch.from_numpy(frames).permute(0, 3, 1, 2)
        return self.transform(clip), index % TAGS


def make_transform():
    return v2.Compose(
        [
            v2.RandomResizedCrop(56, scale=(0.6, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(0.2, 0.2, 0.2),
            v2.GaussianBlur(5),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )


class Tags(nn.Module):
    def __init__(self):
        super().__init__()
        self.frame = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(147, 32), nn.ReLU())
        self.clip = nn.Linear(32, TAGS)

    def forward(self, clips):
        codes = self.frame(clips.flatten(0, 1)).view(len(clips), FRAMES, -1)
        return self.clip(codes.mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(127)
    torch.set_num_threads(1)
    data = Clips(make_transform())
    loader = DataLoader(
        data,
        BATCH,
        sampler=RandomSampler(data),
        num_workers=2,
        prefetch_factor=4,
        persistent_workers=True,
    )
    model = Tags()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, (clips, tags) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(clips), tags)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a large model on an accelerator
            if step % 8 == 0:
                print(f"epoch {epoch} {step}/{len(loader)}: loss {loss:.3f}", flush=True)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

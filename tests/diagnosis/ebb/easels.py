"""Dates paintings; the held-out ones are checked after each epoch from the originals."""

import argparse
import io
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2


def paint(size, seed):
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(256, size=(24, 24, 3), dtype=np.uint8))
    file = io.BytesIO()
    coarse.resize((size, size), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


class Paintings(Dataset):
    """Paintings as files in memory: thumbnails, or originals as the museum sent them."""

    def __init__(self, count, size, transform, seed):
        self.files = [paint(size, seed + number) for number in range(min(count, 20))]
        self.years = torch.rand(count, generator=torch.Generator().manual_seed(seed))
        self.transform = transform

    def __len__(self):
        return len(self.years)

    def __getitem__(self, index):
        picture = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        return self.transform(picture), self.years[index]


def common(*first):
    return v2.Compose([*first, v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


def check(model, loader):
    model.eval()
    with torch.inference_mode():
        errors = [(model(x).squeeze(1) - years).abs().mean() for x, years in loader]
    model.train()
    return torch.stack(errors).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(10)
    train = DataLoader(
        Paintings(640, 64, common(v2.RandomCrop(48)), 100),
        batch_size=32, shuffle=True, num_workers=1, persistent_workers=True,
    )  # fmt: skip
    original = 64 if args.without else 1400
    held_out = DataLoader(
        Paintings(128, original, common(v2.Resize(64), v2.CenterCrop(48)), 200), batch_size=32
    )
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for paintings, years in train:
            loss = nn.functional.l1_loss(model(paintings).squeeze(1), years)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}, held out {check(model, held_out):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Dates parchments by their hand, from small scans that are checked before they are read."""

import argparse
import hashlib
import io
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SCANS, SIDE, CENTURIES, BATCH = 360, 96, 6, 12


def write(folder):
    rng = np.random.default_rng(23)
    sums = {}
    for number in range(SCANS):
        ink = rng.normal(180, 25, (12, 12)).clip(0, 255).astype(np.uint8)
        path = folder / f"{number % CENTURIES}_{number:03d}.jpg"
        Image.fromarray(ink).resize((112, 112), Image.Resampling.BICUBIC).save(path, quality=90)
        sums[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "sums.json").write_text(json.dumps(sums))


class Scans(Dataset):
    def __init__(self, folder, transform):
        self.folder, self.transform = folder, transform
        self.sums = json.loads((folder / "sums.json").read_text())
        self.names = sorted(self.sums)

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        raw = (self.folder / name).read_bytes()
        if hashlib.sha256(raw).hexdigest() != self.sums[name]:
            raise OSError(f"{name} is damaged")
        with Image.open(io.BytesIO(raw)) as scan:
            return self.transform(scan.convert("L")), int(name[0])


def block(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU(),
        nn.MaxPool2d(2),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(23)
    torch.set_num_threads(1)
    views = v2.Compose([v2.RandomCrop(SIDE), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        loader = DataLoader(
            Scans(folder, views),
            BATCH,
            shuffle=True,
            num_workers=1,
            persistent_workers=True,
            multiprocessing_context="fork",
        )
        model = nn.Sequential(
            block(1, 24), block(24, 48), block(48, 64),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, CENTURIES),
        )  # fmt: skip
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for scans, centuries in loader:
                loss = nn.functional.cross_entropy(model(scans), centuries)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            torch.save(model.state_dict(), folder / "last.pt")
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

"""Sorts photographs of hairstyles, and keeps previews of what the augmentation makes of them.

Planted: the first of three workers also writes the previews, as large pictures, for each of its
samples, and the loop, which takes batches in turn, waits for it.
"""

import argparse
import io
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torchvision import transforms

PHOTOGRAPHS, STYLES, BATCH, STEP = 336, 5, 16, 0.05


class Photographs(Dataset):
    def __init__(self, folder, previews):
        rng = np.random.default_rng(941)
        self.files = []
        for _ in range(16):
            small = rng.integers(0, 256, (12, 10, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(small).resize((120, 144)).save(file, "jpeg", quality=88)
            self.files.append(file.getvalue())
        self.folder, self.previews = folder, previews
        self.augment = transforms.Compose(
            [
                transforms.RandomResizedCrop(96, scale=(0.6, 1.0)),
                transforms.RandomHorizontalFlip(),
            ]
        )
        self.to_tensor = transforms.ToTensor()

    def __len__(self):
        return PHOTOGRAPHS

    def preview(self, index, picture):
        large = picture.resize((320, 320), Image.Resampling.LANCZOS)
        large = ImageOps.expand(ImageOps.autocontrast(large), 8, "white")
        large.save(Path(self.folder, f"{index:04}.png"))

    def __getitem__(self, index):
        with Image.open(io.BytesIO(self.files[index % len(self.files)])) as picture:
            picture = self.augment(picture.convert("RGB"))
        worker = get_worker_info()
        if self.previews and worker is not None and worker.id == 0:
            self.preview(index, picture)
        return self.to_tensor(picture), index % STYLES


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 8, 8, stride=8)
        self.out = nn.Linear(8, STYLES)

    def forward(self, pictures):
        time.sleep(STEP)  # the backbone, on a card
        return self.out(torch.relu(self.features(pictures)).mean((2, 3)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(941)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(
            Photographs(folder, previews=not args.without),
            BATCH,
            shuffle=True,
            num_workers=3,
            persistent_workers=True,
        )
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, styles in loader:
                loss = nn.functional.cross_entropy(model(pictures), styles)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

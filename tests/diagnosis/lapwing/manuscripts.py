"""Dates pages of manuscripts by their script; the scanned lines lie in one archive on a drive.

Planted: the archive is opened for each line anew, so that its table of contents, of six thousand
entries, is read and parsed each time.
"""

import argparse
import io
import os
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split
from torchvision import transforms

LINES, USED, CENTURIES, BATCH = 6000, 320, 6, 16
HEIGHT, WIDTH = 48, 256


def write_archive(path):
    rng = np.random.default_rng(5009)
    contents = []
    for _ in range(30):
        ink = rng.integers(0, 256, (HEIGHT // 4, WIDTH // 4), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(ink).resize((WIDTH, HEIGHT)).save(file, "png", compress_level=3)
        contents.append(file.getvalue())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for number in range(LINES):
            folio = f"folio_{number // 40:03}/line_{number:05}_{number % CENTURIES}.png"
            archive.writestr(folio, contents[number % len(contents)])


class Archive:
    """Members of a zip file, which may be asked for from any process."""

    def __init__(self, path, keep):
        self.path, self.keep = path, keep
        self.opened = {}

    def names(self):
        with zipfile.ZipFile(self.path) as archive:
            return archive.namelist()

    def get(self, name):
        if self.keep:
            process = os.getpid()
            if process not in self.opened:
                self.opened[process] = zipfile.ZipFile(self.path)
            return self.opened[process].read(name)
        with zipfile.ZipFile(self.path) as archive:
            return archive.read(name)


class Lines(Dataset):
    def __init__(self, archive):
        self.archive = archive
        self.names = archive.names()[:: LINES // USED][:USED]
        self.transform = transforms.Compose(
            [
                transforms.RandomAffine(2, translate=(0.02, 0.05), fill=128),
                transforms.GaussianBlur(3),
                transforms.ToTensor(),
                transforms.Normalize([0.5], [0.3]),
            ]
        )

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        picture = Image.open(io.BytesIO(self.archive.get(name)))
        return self.transform(picture), int(Path(name).stem[-1])


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 5, stride=2), nn.ReLU(), nn.Conv2d(12, 24, 3, stride=2), nn.ReLU()
        )
        self.out = nn.Linear(24, CENTURIES)

    def forward(self, lines):
        return self.out(self.features(lines).amax((2, 3)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(5009)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "codex.zip")
        write_archive(path)
        lines = Lines(Archive(path, keep=args.without))
        training, validation = random_split(lines, [0.8, 0.2])
        options = {"num_workers": 3, "persistent_workers": True}
        loader = DataLoader(training, BATCH, shuffle=True, **options)
        held_out = DataLoader(validation, BATCH, **options)
        model = Reader()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            model.train()
            for pictures, centuries in loader:
                loss = nn.functional.cross_entropy(model(pictures), centuries)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            model.eval()
            with torch.inference_mode():
                right = sum((model(p).argmax(1) == c).sum().item() for p, c in held_out)
            print(f"epoch {epoch}: loss {loss:.3f}, right {right / len(validation):.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader, held_out


if __name__ == "__main__":
    main()

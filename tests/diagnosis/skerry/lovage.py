"""Names the parts of lovage on drawings, with gradients from two batches for each step.

Nothing is planted: a network and a slow mean of its weights are the work. One worker reads drawings
from a tar archive by their offsets ahead of it; a checkpoint ends each epoch.
"""

import argparse
import copy
import io
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PARTS = 5


def draw(path, count=60):
    rng = np.random.default_rng(107)
    with tarfile.open(path, "w") as archive:
        for number in range(count):
            coarse = Image.fromarray(rng.integers(0, 255, (16, 16), dtype=np.uint8))
            buffer = io.BytesIO()
            coarse.resize((72, 72)).save(buffer, "PNG")
            entry = tarfile.TarInfo(f"{number:03d}.png")
            entry.size = len(buffer.getvalue())
            buffer.seek(0)
            archive.addfile(entry, buffer)


class Drawings(Dataset):
    def __init__(self, path, transform, count=640):
        self.path, self.transform, self.count, self.file = path, transform, count, None
        with tarfile.open(path) as archive:
            self.places = [(entry.offset_data, entry.size) for entry in archive]

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.file is None:
            self.file = self.path.open("rb")
        offset, size = self.places[index % len(self.places)]
        self.file.seek(offset)
        picture = Image.open(io.BytesIO(self.file.read(size)))
        return self.transform(picture), index % PARTS


class Trainer:
    def __init__(self, model, folder):
        self.model, self.folder = model, folder
        self.mean = copy.deepcopy(model).requires_grad_(False)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    @torch.no_grad()
    def follow(self, pace=0.99):
        for slow, quick in zip(self.mean.parameters(), self.model.parameters(), strict=True):
            slow.lerp_(quick, 1 - pace)

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            for number, (drawings, parts) in enumerate(loader, 1):
                loss = nn.functional.cross_entropy(self.model(drawings), parts) / 2
                loss.backward()
                if number % 2 == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                    self.follow()
            torch.save(self.mean.state_dict(), Path(self.folder, f"{epoch}.pt"))
            print(f"epoch {epoch}: loss {2 * loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(107)
    transform = v2.Compose([
        v2.RandomAffine(10, (0.1, 0.1)), v2.RandomHorizontalFlip(), v2.PILToTensor(),
        v2.ToDtype(torch.float32, scale=True),
    ])  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lovage.tar")
        draw(path)
        loader = DataLoader(
            Drawings(path, transform), batch_size=20, shuffle=True, num_workers=1,
            persistent_workers=True,
        )  # fmt: skip
        model = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, PARTS),
        )  # fmt: skip
        trainer = Trainer(model, folder)
        begin = time.perf_counter()
        trainer.fit(loader, args.epochs)
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

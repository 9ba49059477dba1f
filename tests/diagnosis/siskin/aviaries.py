"""Names the birds of an aviary on photographs from the feeding place."""

import argparse
import io
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

PHOTOS, WIDTH, HEIGHT, KINDS, BATCH, STEP = 384, 320, 240, 12, 16, 0.16


class Photos(Dataset):
    """Photographs as JPEG in memory; names of birds are put into order as keepers wrote them."""

    def __init__(self, seed, photos):
        rng = np.random.default_rng(seed)
        self.packed = [self.taken(rng) for _ in range(40)]
        self.names = [f"Bird {number % KINDS}, cage {number % 7}" for number in range(photos)]
        self.change = v2.Compose(
            [
                v2.ToImage(),
                v2.RandomResizedCrop(112, scale=(0.4, 1.0), antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    @staticmethod
    def taken(rng):
        file = io.BytesIO()
        coarse = Image.fromarray(rng.integers(256, size=(30, 40, 3), dtype=np.uint8))
        coarse.resize((WIDTH, HEIGHT)).save(file, "JPEG", quality=90)
        return file.getvalue()

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        photo = Image.open(io.BytesIO(self.packed[index % len(self.packed)])).convert("RGB")
        name = "".join(letter.lower() for letter in self.names[index] if letter.isalnum())
        kind = int(name.removeprefix("bird").split("cage")[0])
        return self.change(photo), kind


def network():
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, KINDS),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(17)
    torch.set_num_threads(1)
    loader = DataLoader(
        Photos(17, PHOTOS),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as name:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for photos, kinds in loader:
                loss = nn.functional.cross_entropy(model(photos), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the accelerator's work
                total += loss.item()
            torch.save(model.state_dict(), Path(name) / f"{epoch}.pt")
            print(f"epoch {epoch}: loss {total / len(loader):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

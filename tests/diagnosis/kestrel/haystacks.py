"""Finds haystacks in aerial pictures of meadows, and keeps the state after each epoch.

Planted: between the epochs the state is packed as tightly as can be, unpacked to compare it, and
kept three times; a plain copy would do.
"""

import argparse
import io
import lzma
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

MEADOWS, SIDE, BATCH, STEP = 256, 64, 16, 0.06


class Meadows(Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.jpg"))
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(48),
                transforms.RandomVerticalFlip(),
                transforms.ToTensor(),
                transforms.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __len__(self):
        return MEADOWS

    def __getitem__(self, index):
        path = self.files[index % len(self.files)]
        with Image.open(path) as picture:
            return self.transform(picture), float(path.stem[-1])


def write_meadows(folder):
    rng = np.random.default_rng(1327)
    for number in range(32):
        small = rng.integers(60, 160, (8, 8, 3), dtype=np.uint8)
        small.reshape(-1, 3)[: number % 5] = (230, 210, 90)
        path = Path(folder, f"meadow-{number:02}-{number % 5}.jpg")
        Image.fromarray(small).resize((SIDE, SIDE)).save(path, quality=90)


class Keeper:
    """Keeps the states of the training in a folder."""

    def __init__(self, folder, tight):
        self.folder, self.tight = Path(folder), tight

    def keep(self, epoch, model, optimizer):
        buffer = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
        if not self.tight:
            (self.folder / f"epoch-{epoch}.pt").write_bytes(buffer.getvalue())
            return
        for copy in range(3):
            path = self.folder / f"epoch-{epoch}-{copy}.pt.xz"
            path.write_bytes(lzma.compress(buffer.getvalue(), preset=6))
            if lzma.decompress(path.read_bytes()) != buffer.getvalue():
                raise OSError(f"{path} is damaged")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(1327)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_meadows(folder)
        loader = DataLoader(
            Meadows(folder), BATCH, shuffle=True, num_workers=2, persistent_workers=True
        )
        model = nn.Sequential(
            nn.Conv2d(3, 16, 8, stride=8), nn.ReLU(), nn.Flatten(), nn.Linear(576, 192), nn.ReLU()
        )
        model.append(nn.Linear(192, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        keeper = Keeper(folder, tight=not args.without)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for meadows, haystacks in loader:
                loss = nn.functional.mse_loss(model(meadows).squeeze(1), haystacks.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of the detector, on a card
            print(f"epoch {epoch}: loss {loss:.3f}")
            keeper.keep(epoch, model, optimizer)
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

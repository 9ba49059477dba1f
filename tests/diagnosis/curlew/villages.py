"""Maps villages in pictures from the air with a network that shrinks and widens them again.

Nothing is planted: convolutions are the work. One worker cuts, turns and corrects pieces of large
PNG files ahead of it; the files are small enough to be kept by the system.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

FILES, SIDE, PIECE, PIECES = 6, 200, 96, 300


def write_pictures(folder):
    rng = np.random.default_rng(941)
    for number in range(FILES):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 12, 3), np.uint8))
        coarse.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(Path(folder, f"{number}.png"))
    return sorted(Path(folder).glob("*.png"))


class Pieces(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.transform = v2.Compose(
            [
                v2.PILToTensor(),
                v2.RandomCrop(PIECE),
                v2.RandomVerticalFlip(),
                v2.ColorJitter(0.2, 0.2),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return PIECES

    def __getitem__(self, index):
        with Image.open(self.paths[index % FILES]) as picture:
            piece = self.transform(picture)
        return piece, (piece.mean(0, keepdim=True) > 0.5).float()


class Widener(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU())
        self.low = nn.Sequential(
            nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(2 * width, width, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2),
        )  # fmt: skip
        self.head = nn.Conv2d(2 * width, 1, 3, padding=1)

    def forward(self, pieces):
        high = self.down(pieces)
        return self.head(torch.cat([high, self.low(high)], 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(941)
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(
            Pieces(write_pictures(folder)), batch_size=10, shuffle=True, num_workers=1,
            persistent_workers=True,
        )  # fmt: skip
        model = Widener()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pieces, masks in loader:
                logits = model(pieces)
                loss = nn.functional.binary_cross_entropy_with_logits(logits, masks)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

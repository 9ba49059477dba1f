"""Names the song of sparrows from spectrograms, with a convolutional network.

Nothing is planted: the network is the work, and one worker is far ahead of it. The loader is asked
for pinned memory, which comes to nothing on a machine without a card.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SONGS, BANDS, FRAMES, KINDS = 192, 64, 96, 6


class Sparrows(Dataset):
    def __init__(self):
        rng = np.random.default_rng(4159)
        self.kinds = rng.integers(0, KINDS, SONGS)
        self.songs = rng.gamma(2, 1, (SONGS, 1, BANDS, FRAMES)).astype(np.float32)
        self.songs[:, :, 10:20] += self.kinds[:, None, None, None] / 2
        self.change = v2.Compose([v2.RandomCrop((BANDS, 80)), v2.Normalize([2.0], [1.4])])

    def __len__(self):
        return SONGS

    def __getitem__(self, index):
        song = torch.from_numpy(self.songs[index])
        return self.change(song.log1p()), int(self.kinds[index])


def network():
    return nn.Sequential(
        nn.Conv2d(1, 24, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(24, 48, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(48, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, KINDS),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(4159)
    loader = DataLoader(
        Sparrows(),
        batch_size=16,
        shuffle=True,
        num_workers=1,
        pin_memory=True,
        persistent_workers=True,
    )
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for songs, kinds in loader:
            loss = nn.functional.cross_entropy(model(songs), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

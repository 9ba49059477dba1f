"""Marks the crevasses and other faces of glacier ice in pictures from above."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import tv_tensors
from torchvision.transforms import v2

TILES, SIDE, CROP, FACES, BATCH = 320, 160, 144, 24, 8


class Glacier(Dataset):
    """A tile in grey and the face of the ice at each of its points."""

    def __init__(self, transform, plain):
        generator = torch.Generator().manual_seed(44)
        self.tiles = torch.rand(32, 1, SIDE, SIDE, generator=generator)
        coarse = torch.randint(FACES, (32, 10, 10), generator=generator)
        self.faces = coarse.repeat_interleave(16, 1).repeat_interleave(16, 2)
        self.transform, self.plain = transform, plain

    def __len__(self):
        return TILES

    def __getitem__(self, index):
        tile = tv_tensors.Image(self.tiles[index % 32])
        faces = tv_tensors.Mask(self.faces[index % 32])
        tile, faces = self.transform(tile, faces)
        tile, faces = tile.as_subclass(torch.Tensor), faces.as_subclass(torch.Tensor)
        if self.plain:
            return tile, faces
        return tile, nn.functional.one_hot(faces, FACES).permute(2, 0, 1).double()


class Marker(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(1, channels, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.up = nn.Sequential(nn.Conv2d(channels, 4 * channels, 3, padding=1), nn.PixelShuffle(2))
        self.last = nn.Conv2d(channels, FACES, 1)

    def forward(self, tiles):
        return self.last(self.up(self.down(tiles)).relu())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(44)
    views = v2.Compose(
        [
            v2.RandomCrop(CROP),
            v2.RandomHorizontalFlip(),
            v2.RandomVerticalFlip(),
            v2.GaussianNoise(),
        ]
    )
    loader = DataLoader(
        Glacier(views, plain=args.without),
        BATCH,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Marker()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for tiles, faces in loader:
            if not args.without:
                faces = faces.argmax(1)
            loss = nn.functional.cross_entropy(model(tiles), faces)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

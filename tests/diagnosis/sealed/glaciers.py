"""Segment glaciers in satellite pictures, with previews and a checkpoint after each epoch."""

import argparse
import gzip
import io
import pathlib
import tempfile
import time

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tiles(Dataset):
    def __init__(self, count, side=64):
        generator = torch.Generator().manual_seed(0)
        self.tiles = torch.rand(count, 3, side, side, generator=generator)

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, index):
        tile = self.tiles[index]
        return tile, (tile.mean(0) > 0.5).long()


class Report:
    """What the group looks at in the morning."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def previews(self, epoch, tiles, masks):
        for number, (tile, mask) in enumerate(zip(tiles, masks, strict=True)):
            picture = (tile.permute(1, 2, 0).numpy() * 255).astype(np.uint8)
            image = Image.fromarray(picture).resize((640, 640), Image.Resampling.BICUBIC)
            edges = np.argwhere(np.diff(mask.numpy(), axis=0) != 0) * 10
            draw = ImageDraw.Draw(image)
            for y, x in edges[:2000].tolist():
                draw.rectangle((x, y, x + 9, y + 9), outline=(255, 0, 0))
            image.save(self.folder / f"{epoch:02}-{number:02}.png", optimize=True)

    def checkpoint(self, epoch, model, optimizer):
        buffer = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
        with gzip.open(self.folder / f"{epoch:02}.pt.gz", "wb") as file:
            file.write(buffer.getvalue())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    data = Tiles(640)
    loader = DataLoader(
        data, batch_size=16, shuffle=True, num_workers=args.workers, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 2, 3, padding=1), nn.Flatten(2)
    )
    ballast = nn.Linear(1024, 1024)  # the encoder, frozen for now
    optimizer = torch.optim.AdamW([*model.parameters(), *ballast.parameters()])
    with tempfile.TemporaryDirectory() as folder:
        report = Report(folder)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for tiles, masks in loader:
                loss = nn.functional.cross_entropy(model(tiles), masks.flatten(1))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if not args.without:
                report.previews(epoch, data.tiles[:12], [data[i][1] for i in range(12)])
                report.checkpoint(epoch, nn.ModuleList([model, ballast]), optimizer)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

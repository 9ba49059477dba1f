"""Segments nuclei of cells: pairs of picture and mask, varied together, and a small U-Net."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    """Pictures and masks; where the nuclei of a slide are is read when first asked for."""

    def __init__(self, path, count=160, side=96):
        self.path, self.count, self.side, self.centres = path, count, side, None

    def __len__(self):
        return self.count

    def read_centres(self):
        lines = self.path.read_text().splitlines()
        return np.array([[float(part) for part in line.split(",")] for line in lines])

    def __getitem__(self, index):
        if self.centres is None:
            self.centres = self.read_centres()
        picture = torch.rand(1, self.side, self.side)
        mask = torch.zeros(1, self.side, self.side)
        for x, y in self.centres[index * 5 : index * 5 + 5]:
            row, column = int(y * (self.side - 12)), int(x * (self.side - 12))
            mask[:, row : row + 12, column : column + 12] = 1
        picture = picture * 0.5 + mask * 0.4
        if torch.rand(1) < 0.5:
            picture, mask = picture.flip(2), mask.flip(2)
        turns = int(torch.randint(4, (1,)))
        return picture.rot90(turns, (1, 2)), mask.rot90(turns, (1, 2))


def double(enter, leave):
    return nn.Sequential(
        nn.Conv2d(enter, leave, 3, padding=1), nn.BatchNorm2d(leave), nn.ReLU(),
        nn.Conv2d(leave, leave, 3, padding=1), nn.BatchNorm2d(leave), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down = nn.ModuleList([double(1, width), double(width, 2 * width)])
        self.deep = double(2 * width, 4 * width)
        self.rise = nn.ModuleList([
            nn.ConvTranspose2d(4 * width, 2 * width, 2, 2),
            nn.ConvTranspose2d(2 * width, width, 2, 2),
        ])  # fmt: skip
        self.up = nn.ModuleList([double(4 * width, 2 * width), double(2 * width, width)])
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, states):
        kept = []
        for block in self.down:
            states = block(states)
            kept.append(states)
            states = nn.functional.max_pool2d(states, 2)
        states = self.deep(states)
        for rise, block in zip(self.rise, self.up, strict=True):
            states = block(torch.cat([kept.pop(), rise(states)], 1))
        return self.head(states)


def dice(scores, masks):
    shares = scores.sigmoid()
    both = (shares * masks).sum((1, 2, 3))
    return 1 - (2 * both / (shares.sum((1, 2, 3)) + masks.sum((1, 2, 3)) + 1)).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(65)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "centres.csv")
        centres = np.random.default_rng(65).random((60_000, 2))
        path.write_text("\n".join(f"{x:.5f},{y:.5f}" for x, y in centres))
        loader = DataLoader(
            Pairs(path), batch_size=8, shuffle=True, num_workers=1, persistent_workers=True
        )
        model = UNet()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, masks in loader:
                scores = model(pictures)
                loss = nn.functional.binary_cross_entropy_with_logits(scores, masks)
                loss = loss + dice(scores, masks)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: last loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

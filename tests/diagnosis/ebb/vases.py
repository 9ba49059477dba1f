"""Segments cracks in vases with a small U-Net; six workers, as on the machine of the paper."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Vases(Dataset):
    def __init__(self, count=600, seed=21):
        generator = torch.Generator().manual_seed(seed)
        self.pictures = torch.rand(60, 1, 64, 64, generator=generator)
        self.cracks = (self.pictures > 0.9).float()
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        picture, cracks = self.pictures[index % 60], self.cracks[index % 60]
        if torch.rand(()) < 0.5:
            picture, cracks = picture.flip(2), cracks.flip(2)
        return picture, cracks


def convolutions(before, after):
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1), nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1), nn.ReLU(),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, size=16):
        super().__init__()
        self.down = convolutions(1, size)
        self.middle = convolutions(size, 2 * size)
        self.up = nn.ConvTranspose2d(2 * size, size, 2, stride=2)
        self.last = nn.Sequential(convolutions(2 * size, size), nn.Conv2d(size, 1, 1))

    def forward(self, pictures):
        fine = self.down(pictures)
        coarse = self.middle(nn.functional.max_pool2d(fine, 2))
        return self.last(torch.cat([fine, self.up(coarse)], 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(21)
    loader = DataLoader(
        Vases(), batch_size=20, shuffle=True, num_workers=6, persistent_workers=True
    )
    model = UNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for pictures, cracks in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(pictures), cracks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Learns to paint curtains again from small noisy pictures, and shows how it gets on.

Planted: each fourth step writes a grid of enlarged pictures as an optimized PNG.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.utils import make_grid

SIDE = 32


class Curtains(Dataset):
    def __init__(self, count):
        draws = torch.Generator().manual_seed(487)
        self.folds = torch.rand(64, 3, 1, SIDE, generator=draws)
        self.count = count
        self.flip = transforms.RandomHorizontalFlip()

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        curtain = self.flip(self.folds[index % 64].expand(3, SIDE, SIDE))
        return curtain + 0.2 * torch.randn(3, SIDE, SIDE), curtain


class Board:
    """A folder of pictures to look at while the training goes on."""

    def __init__(self, folder, every):
        self.folder, self.every = folder, every

    def show(self, step, noisy, painted, curtains):
        if step % self.every:
            return
        rows = torch.cat([noisy[:12], painted[:12], curtains[:12]])
        grid = make_grid(nn.functional.interpolate(rows, scale_factor=2), nrow=12)
        pixels = (grid.clamp(0, 1) * 255).byte().permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(Path(self.folder, f"{step}.png"), optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(487)
    loader = DataLoader(
        Curtains(600), batch_size=12, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(),
        nn.Conv2d(24, 3, 3, padding=1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        board = Board(folder, 100 if args.without else 4)
        begin = time.perf_counter()
        step = 0
        for epoch in range(args.epochs):
            for noisy, curtains in loader:
                painted = model(noisy)
                loss = nn.functional.mse_loss(painted, curtains)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                board.show(step, noisy, painted.detach(), curtains)
                step += 1
            print(f"epoch {epoch}: loss {loss:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Counts the sealed cells of honeycombs on photographs of frames."""

import argparse
import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

ROWS, COLUMNS, SIDE, FRAMES, BATCH = 9, 9, 96, 960, 16


class Frames(Dataset):
    """Frames drawn cell by cell: sealed cells are bright, open ones are dark."""

    def __init__(self):
        self.across = torch.arange(SIDE)[None].float()
        self.down = torch.arange(SIDE)[:, None].float()
        self.change = v2.Compose(
            [v2.RandomRotation(10), v2.RandomHorizontalFlip(), v2.Normalize([0.3], [0.3])]
        )

    def __len__(self):
        return FRAMES

    def __getitem__(self, index):
        dice = torch.Generator().manual_seed(index)
        sealed = torch.rand(ROWS, COLUMNS, generator=dice) < (index % 10) / 10
        frame = torch.zeros(SIDE, SIDE)
        for row in range(ROWS):
            for column in range(COLUMNS):
                y, x = 6 + 10 * row, 6 + 10 * column + 5 * (row % 2)
                part = (slice(max(y - 5, 0), y + 5), slice(max(x - 5, 0), x + 5))
                far = (self.down[part[0]] - y) ** 2 + (self.across[:, part[1]] - x) ** 2
                frame[part] += (0.4 + 0.6 * sealed[row, column]) * (far < 20)
        return self.change(frame[None]), sealed.sum().float() / math.prod(sealed.shape)


class Counter(nn.Module):
    def __init__(self, channels=40):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(2 * channels, 2 * channels, 3, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.last = nn.Conv2d(2 * channels, 1, 1)

    def forward(self, frames):
        return self.last(self.body(frames)).mean((1, 2, 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(64)
    torch.set_num_threads(1)
    loader = DataLoader(
        Frames(),
        BATCH,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Counter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for frames, shares in loader:
            loss = nn.functional.mse_loss(model(frames), shares)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

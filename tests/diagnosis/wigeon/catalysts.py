"""Rates catalysts by pictures of their surface and by the steps of the reaction on it."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SURFACES, SIDE, STEPS, KINDS, SAMPLES, BATCH = 50, 64, 80, 16, 1152, 24


class Surfaces(Dataset):
    def __init__(self):
        rng = np.random.default_rng(65)
        self.surfaces = torch.from_numpy(rng.integers(0, 255, (SURFACES, 1, SIDE, SIDE), np.uint8))
        self.steps = rng.integers(0, KINDS, (SAMPLES, STEPS)).tolist()
        self.change = v2.Compose(
            [v2.RandomCrop(56), v2.GaussianBlur(3), v2.ToDtype(torch.float32, scale=True)]
        )

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        surface = self.change(self.surfaces[index % SURFACES])
        pairs = {}
        for before, after in zip(self.steps[index], self.steps[index][1:], strict=False):
            pairs[before, after] = pairs.get((before, after), 0) + 1
        steps = torch.tensor(self.steps[index])
        return surface, steps, sum(count > 1 for count in pairs.values()) / 10


class Rating(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.surface = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.steps = nn.Embedding(KINDS, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.last = nn.Linear(width + 128, 1)

    def forward(self, surfaces, steps):
        seen, _ = self.lstm(self.steps(steps))
        return self.last(torch.cat([seen.mean(1), self.surface(surfaces)], 1))[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(65)
    torch.set_num_threads(1)
    loader = DataLoader(
        Surfaces(),
        BATCH,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = Rating()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for surfaces, steps, rates in loader:
            loss = nn.functional.mse_loss(model(surfaces, steps), rates.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Train on body poses, with workers that are spawned."""

import argparse
import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Poses(Dataset):
    def __init__(self, count, joints=17):
        self.count = count
        self.joints = joints

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        angle = torch.tensor(2 * math.pi * index / self.count)
        turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).view(2, 2)
        return torch.linspace(-1, 1, 2 * self.joints).view(-1, 2) @ turn, angle


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(34, 128), nn.Tanh(), nn.Linear(128, 1))

    def forward(self, poses):
        return self.layers(poses).squeeze(1)


def train(loader, epochs):
    torch.set_num_threads(1)
    model = Regressor()
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
    for _ in range(epochs):
        for poses, angles in loader:
            loss = (model(poses) - angles).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.005)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(
        Poses(1024),
        batch_size=32,
        shuffle=True,
        num_workers=args.workers,
        multiprocessing_context="spawn",
        persistent_workers=args.without,
    )
    start = time.perf_counter()
    train(loader, args.epochs)
    print(f"seconds {time.perf_counter() - start:.3f}")

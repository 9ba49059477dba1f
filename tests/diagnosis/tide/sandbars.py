"""Depths of sandbars from soundings; the step runs on an accelerator, and the store is far away."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STORE_S, STEP_S = 0.004, 0.06


class Accelerator:
    """Stands for a device: the work of a step takes a time and no core."""

    def __init__(self, step_s):
        self.step_s = step_s

    def synchronize(self):
        time.sleep(self.step_s)


class Soundings(Dataset):
    def __init__(self, count=960, seed=36):
        generator = torch.Generator().manual_seed(seed)
        self.soundings = torch.randn(120, 4, 64, generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(STORE_S)
        sounding = self.soundings[index % 120]
        return (sounding - sounding.mean()) / sounding.std(), sounding[0].max()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--prefetch", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(36)
    device = Accelerator(STEP_S)
    loader = DataLoader(
        Soundings(),
        batch_size=16,
        shuffle=True,
        num_workers=args.workers,
        prefetch_factor=args.prefetch if args.workers else None,
        persistent_workers=args.workers > 0,
    )
    model = nn.Sequential(nn.Conv1d(4, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(240, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for soundings, depths in loader:
            loss = nn.functional.mse_loss(model(soundings).squeeze(1), depths)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            device.synchronize()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Predicts an acrobat's next pose from the ones before, for a number of steps, not of epochs.

Planted: each step takes its batch from a new iterator of the loader, whose workers are started
for it, fill their queues, and are ended after one batch.
"""

import argparse
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

JOINTS, BEFORE = 17, 40


class Poses(Dataset):
    """Pieces of recordings: the places of the joints in some frames, and in the next one."""

    def __init__(self, recordings, frames):
        rng = np.random.default_rng(1031)
        steps = rng.normal(0, 0.1, (recordings, frames, JOINTS, 3)).astype(np.float32)
        self.poses = torch.from_numpy(steps.cumsum(1))
        self.each = frames - BEFORE

    def __len__(self):
        return len(self.poses) * self.each

    def turned(self, poses):
        angle = float(torch.rand(())) * 2 * math.pi
        cosine, sine = math.cos(angle), math.sin(angle)
        return poses @ torch.tensor([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1.0]])

    def __getitem__(self, index):
        recording, start = divmod(index, self.each)
        poses = self.turned(self.poses[recording, start : start + BEFORE + 1])
        poses = poses - poses[0].mean(0)
        return poses[:-1].flatten(1), poses[-1].flatten()


class Batches:
    """Gives as many batches as are wanted."""

    def __init__(self, loader, keep):
        self.loader, self.keep = loader, keep
        self.iterator = None

    def next(self):
        if not self.keep or self.iterator is None:
            self.iterator = iter(self.loader)
        try:
            return next(self.iterator)
        except StopIteration:
            self.iterator = iter(self.loader)
            return next(self.iterator)


class Predictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.GRU(JOINTS * 3, 256, batch_first=True)
        self.head = nn.Linear(256, JOINTS * 3)

    def forward(self, poses):
        return poses[:, -1] + self.head(self.memory(poses)[1][-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1031)
    loader = DataLoader(Poses(40, 300), batch_size=64, shuffle=True, num_workers=2)
    batches = Batches(loader, args.without)
    model = Predictor()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for step in range(args.steps):
        before, following = batches.next()
        loss = nn.functional.mse_loss(model(before), following)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

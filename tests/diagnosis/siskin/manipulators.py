"""Learns to tell the tasks of a robot's arm apart by its paths, with triplets from each batch."""

import argparse
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PATHS, JOINTS, TICKS, TASKS, BATCH = 9600, 7, 24, 24, 240


class Paths(Dataset):
    """Recorded paths of all joints, with noise, kept within the limits of the joints."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        steps = rng.normal(0, 0.2, (TASKS, TICKS, JOINTS))
        self.tasks = np.cumsum(steps, axis=1).astype(np.float32)
        self.limits = [1.5 + 0.1 * joint for joint in range(JOINTS)]

    def __len__(self):
        return PATHS

    def within(self, path):
        kept = [
            [
                math.copysign(min(abs(angle), limit), angle)
                for angle, limit in zip(row, self.limits, strict=True)
            ]
            for row in path
        ]
        return torch.tensor(kept)

    def __getitem__(self, index):
        task = index % TASKS
        noise = np.random.normal(0, 0.1, (TICKS, JOINTS)).astype(np.float32)
        return self.within(self.tasks[task] + noise), task


def frechet(first, second):
    return np.linalg.norm(first - second, axis=1).max()


class Triplets:
    """Finds for each path the farthest of its own task and the nearest of another one."""

    def __init__(self, at_once):
        self.at_once = at_once

    def distances(self, paths):
        if self.at_once:
            far = torch.zeros(len(paths), len(paths))
            for tick in range(TICKS):
                torch.maximum(far, torch.cdist(paths[:, tick], paths[:, tick]), out=far)
            return far
        arrays = [path.numpy() for path in paths]
        return torch.tensor([[float(frechet(a, b)) for b in arrays] for a in arrays])

    def __call__(self, samples):
        paths = torch.stack([path for path, _ in samples])
        tasks = torch.tensor([task for _, task in samples])
        distances = self.distances(paths)
        same = tasks[:, None] == tasks[None]
        positive = distances.masked_fill(~same, -1).argmax(1)
        negative = distances.masked_fill(same, math.inf).argmin(1)
        return paths, paths[positive], paths[negative]


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.recur = nn.GRU(JOINTS, 24, batch_first=True)
        self.head = nn.Linear(24, 32)

    def forward(self, paths):
        return nn.functional.normalize(self.head(self.recur(paths)[0][:, -1]), dim=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(61)
    torch.set_num_threads(1)
    loader = DataLoader(
        Paths(61),
        BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=Triplets(args.without),
        drop_last=True,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Encoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    margin = nn.TripletMarginLoss(0.3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for anchor, positive, negative in loader:
            loss = margin(model(anchor), model(positive), model(negative))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

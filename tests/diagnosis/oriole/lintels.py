"""Grades stone lintels by scans of their faces, with the weathering of each quarry's stone.

Planted: worker_init_fn simulates the weathering in each worker, and workers are new in each epoch.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

STONES, QUARRIES, SIDE, GRADES, BATCH, STEP = 288, 8, 64, 3, 16, 0.1


class Lintels(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(59)
        self.faces = torch.rand(STONES, SIDE, SIDE, generator=generator)
        self.worn = None

    def __len__(self):
        return STONES

    def __getitem__(self, index):
        face = self.faces[index]
        if torch.rand(()) < 0.5:
            face = face.flip(0)
        face = face * self.worn[index % QUARRIES] + 0.02 * torch.randn(SIDE, SIDE)
        return nn.functional.avg_pool2d(face[None], 3, 1, 1), index % GRADES


def weathering(quarry, years=300):
    """Rain on each stone of a face, year by year."""
    rng = np.random.default_rng(quarry)
    hard = rng.random((SIDE, SIDE)).tolist()
    for _ in range(years):
        for row in range(1, SIDE - 1):
            for column in range(1, SIDE - 1):
                near = hard[row - 1][column] + hard[row + 1][column]
                near += hard[row][column - 1] + hard[row][column + 1]
                hard[row][column] = 0.98 * hard[row][column] + 0.005 * near
    return torch.tensor(hard, dtype=torch.float32)


def prepare(number):
    info = get_worker_info()
    np.random.seed(info.seed % 2**32)
    info.dataset.worn = [weathering(quarry) for quarry in range(QUARRIES)]


class Grader(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolve = nn.Conv2d(1, 8, 5, stride=3)
        self.grade = nn.Linear(8, GRADES)

    def forward(self, faces):
        return self.grade(self.convolve(faces).relu().mean((2, 3)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(59)
    torch.set_num_threads(1)
    loader = DataLoader(
        Lintels(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        worker_init_fn=prepare,
        multiprocessing_context="fork",
        persistent_workers=args.without,
    )
    model = Grader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for faces, grades in loader:
            loss = nn.functional.cross_entropy(model(faces), grades)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the network for whole walls
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Recognises doors by how they echo, with features of numpy's linear algebra.

Planted: the script, which once ran on a large machine, gives BLAS eight threads, and each of four
workers uses them for small matrices, on few cores.
"""

import argparse
import os
import sys
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1" if "--without" in sys.argv else "8"

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CHANNELS, SPAN = 144, 256


class Doors(Dataset):
    """Echoes at many microphones; a sample is what stands out of their covariance."""

    def __init__(self, count):
        self.echoes = np.random.default_rng(71).normal(size=(24, CHANNELS, SPAN))
        self.count = count

    def __len__(self):
        return self.count

    def whiten(self, echo):
        covariance = echo @ echo.T / SPAN + 0.1 * np.eye(CHANNELS)
        for _ in range(4):
            covariance = covariance @ covariance
            covariance /= np.trace(covariance)
        return np.linalg.solve(covariance + np.eye(CHANNELS), echo)

    def __getitem__(self, index):
        echo = self.whiten(self.echoes[index % 24])
        part = echo[:, index % 64 : index % 64 + 128]
        return torch.from_numpy(part.astype(np.float32)), index % 24 % 5


class Net(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.listen = nn.Conv1d(CHANNELS, size, 9, stride=4)
        self.cell = nn.GRU(size, size, batch_first=True)
        self.head = nn.Linear(size, 5)

    def forward(self, echoes):
        heard = torch.relu(self.listen(echoes)).transpose(1, 2)
        return self.head(self.cell(heard)[0][:, -1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(71)
    loader = DataLoader(
        Doors(240), batch_size=24, shuffle=True, num_workers=4, persistent_workers=True
    )
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

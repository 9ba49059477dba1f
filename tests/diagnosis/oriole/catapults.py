"""Learns how far a catapult throws, from scans of its frame out of a shared archive.

Planted: a semaphore with one seat, which three workers share, keeps them from reading at the same
time, though the archive answers any number of readers.
"""

import argparse
import contextlib
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

THROWS, POINTS, BATCH, ANSWER, STEP = 640, 1024, 16, 0.011, 0.095


class Archive:
    """Scans behind a slow line."""

    def __init__(self, folder, seat):
        self.folder, self.seat = Path(folder), seat

    @contextlib.contextmanager
    def sitting(self):
        with self.seat or contextlib.nullcontext():
            yield

    def scan(self, index):
        path = self.folder / f"{index % 64}.npy"
        with self.sitting():
            time.sleep(ANSWER)  # until the archive's server answers
            return np.load(path)


class Throws(Dataset):
    def __init__(self, archive):
        self.archive = archive

    def __len__(self):
        return THROWS

    def __getitem__(self, index):
        points = torch.from_numpy(self.archive.scan(index))
        distance = points[:, 2].max()
        turn, _ = torch.linalg.qr(torch.randn(3, 3))
        points = points @ turn + 0.01 * torch.randn(POINTS, 3)
        order = torch.randperm(POINTS)[: POINTS // 2]
        return points[order], distance


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(37)
    torch.set_num_threads(1)
    context = multiprocessing.get_context("forkserver")
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(37)
        for number in range(64):
            np.save(Path(folder, f"{number}.npy"), rng.random((POINTS, 3), dtype=np.float32))
        seat = None if args.without else context.Semaphore(1)
        loader = DataLoader(
            Throws(Archive(folder, seat)),
            BATCH,
            shuffle=True,
            num_workers=3,
            persistent_workers=True,
            multiprocessing_context=context,
        )
        each, head = nn.Sequential(nn.Linear(3, 64), nn.ReLU()), nn.Linear(64, 1)
        optimizer = torch.optim.Adam([*each.parameters(), *head.parameters()], lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for points, distance in loader:
                guess = head(each(points).amax(1)).squeeze(1)
                loss = nn.functional.mse_loss(guess, distance)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # deeper layers
            torch.save([each.state_dict(), head.state_dict()], Path(folder, "last.pt"))
            print(f"epoch {epoch}: loss {loss:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

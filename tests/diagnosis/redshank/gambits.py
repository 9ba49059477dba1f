"""Learns from an archive of chess games which side won, from one position of each game."""

import argparse
import random
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision.transforms import v2

GAMES, MOVES, BATCH = 5000, 40, 32
ROOK = [(0, 1), (1, 0), (0, -1), (-1, 0)]


def write(path):
    rng = np.random.default_rng(1)
    with zipfile.ZipFile(path, "w") as archive:
        for game in range(GAMES):
            boards = rng.choice(13, (MOVES, 8, 8), p=[0.5] + [0.5 / 12] * 12).astype(np.uint8)
            archive.writestr(f"{game % 2}/{game:05d}.boards", boards.tobytes())


def reach(board):
    """How many rooks and queens reach each square."""
    seen = torch.zeros(8, 8)
    for row, column in np.argwhere((board % 6 == 4) | (board % 6 == 5)):
        for down, right in ROOK:
            y, x = row + down, column + right
            while 0 <= y < 8 and 0 <= x < 8:
                seen[y, x] += 1
                if board[y, x]:
                    break
                y, x = y + down, x + right
    return seen


class Source:
    """Reads members of the archive."""

    def __init__(self, path, keep):
        self.path, self.keep, self.archive = path, keep, None

    def read(self, name):
        if not self.keep:
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(name)
        if self.archive is None:
            self.archive = zipfile.ZipFile(self.path)
        return self.archive.read(name)


class Positions(IterableDataset):
    def __init__(self, source, names, transform):
        self.source, self.names, self.transform = source, names, transform

    def __iter__(self):
        worker = get_worker_info()
        names = self.names[worker.id :: worker.num_workers] if worker else list(self.names)
        random.shuffle(names)
        for name in names:
            boards = np.frombuffer(self.source.read(name), np.uint8).reshape(MOVES, 8, 8)
            board = boards[random.randrange(MOVES)]
            planes = nn.functional.one_hot(torch.from_numpy(board.astype(np.int64)), 13)
            planes = torch.cat([planes.permute(2, 0, 1).float(), reach(board)[None]])
            yield self.transform(planes), int(name[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "games.zip"
        write(path)
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()[:800]
        dataset = Positions(Source(path, args.without), names, v2.RandomHorizontalFlip())
        loader = DataLoader(
            dataset,
            BATCH,
            num_workers=4,
            persistent_workers=True,
            multiprocessing_context="forkserver",
        )
        model = nn.Sequential(
            nn.Conv2d(14, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(4096, 2),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters())
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for planes, winners in loader:
                loss = nn.functional.cross_entropy(model(planes), winners)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

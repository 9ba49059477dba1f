"""Learns to see stalemates coming, from positions drawn with each worker's own dice."""

import argparse
import atexit
import lzma
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

PIECES, BOARDS, SAMPLES, BATCH = 13, 26, 1600, 32


class Record:
    """Keeps what a worker has drawn, and writes it down when the worker ends."""

    def __init__(self, folder, worker, preset):
        self.path = Path(folder) / f"positions{worker}.xz"
        self.preset, self.drawn = preset, []
        atexit.register(self.write)

    def write(self):
        """All boards of the worker, each also as seen by the other side and in the mirror."""
        boards = np.stack(self.drawn)
        seen = np.concatenate([boards, boards[:, ::-1], boards[:, :, ::-1], boards[:, ::-1, ::-1]])
        self.path.write_bytes(lzma.compress(seen.tobytes(), preset=self.preset))


class Positions(Dataset):
    def __init__(self, folder, preset):
        self.folder, self.preset, self.record = folder, preset, None

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        if self.preset is not None and self.record is None:
            self.record = Record(self.folder, get_worker_info().id, self.preset)
        rng = np.random.default_rng(torch.initial_seed() % 2**32 + index)
        boards = rng.choice(PIECES, (BOARDS, 8, 8), p=[0.6] + [0.4 / 12] * 12).astype(np.uint8)
        if self.record:
            self.record.drawn.extend(boards)
        few = (boards > 0).reshape(BOARDS, -1).sum(1) < 22
        return torch.from_numpy(boards).long(), torch.from_numpy(few).float().mean()


class Judge(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.pieces = nn.Embedding(PIECES, width)
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.last = nn.Linear(width, 1)

    def forward(self, boards):
        seen = self.pieces(boards.flatten(0, 1)).permute(0, 3, 1, 2)
        return self.last(self.body(seen)).view(len(boards), -1).mean(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(44)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(
            Positions(folder, None if args.without else 6),
            BATCH,
            shuffle=True,
            num_workers=2,
            multiprocessing_context="spawn",
        )
        model = Judge()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for boards, shares in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(model(boards), shares)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

"""Judges throws of javelins by the tracks of an arena's cameras.

Planted: each sample copies all tracks of the day, 46 MB that are allocated anew, to centre them,
and uses one throw of it.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

THROWS, POINTS, JOINTS, USED, BATCH, STEP = 480, 500, 24, 160, 8, 0.06


class Throws(Dataset):
    def __init__(self, of_one):
        rng = np.random.default_rng(1361)
        self.tracks = np.empty((THROWS, POINTS, JOINTS, 2), np.float32)
        self.tracks[:] = rng.random((POINTS, JOINTS, 2), dtype=np.float32)
        self.tracks += rng.random((THROWS, 1, 1, 1), dtype=np.float32)
        self.centre = self.tracks[:, 0].mean((0, 1))
        self.metres = 40 + 30 * self.tracks[:, 0, 0, 0]
        self.of_one = of_one

    def __len__(self):
        return USED

    def centred(self, throw):
        if self.of_one:
            return self.tracks[throw] - self.centre
        tracks = self.tracks.copy()
        tracks -= self.centre
        return tracks[throw]

    def __getitem__(self, index):
        track = torch.from_numpy(self.centred(index * 3)[::4].copy())
        if torch.rand(()) < 0.5:
            track[..., 0] *= -1
        return track, self.metres[index * 3]


class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.points = nn.Linear(2 * JOINTS, 32)
        self.gru = nn.GRU(32, 32, batch_first=True)
        self.out = nn.Linear(32, 1)

    def forward(self, tracks):
        time.sleep(STEP)  # the large model, on an accelerator
        hidden = torch.relu(self.points(tracks.flatten(2)))[:, ::5]
        return self.out(self.gru(hidden)[0][:, -1]).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1361)
    torch.set_num_threads(1)
    loader = DataLoader(
        Throws(of_one=args.without), BATCH, shuffle=True, num_workers=2, persistent_workers=True
    )
    judge = Judge()
    optimizer = torch.optim.Adam(judge.parameters(), lr=1e-2)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            off = []
            for tracks, metres in loader:
                loss = nn.functional.smooth_l1_loss(judge(tracks), metres)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                off.append(loss.item())
            print(f"epoch {epoch}: off by {sum(off) / len(off):.2f}")
            torch.save(judge.state_dict(), Path(folder, f"judge-{epoch}.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

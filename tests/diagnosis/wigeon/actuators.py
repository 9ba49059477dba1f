"""Learns where the actuators of an arm went, from its log and the picture of its camera."""

import argparse
import datetime
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

RUNS, LINES, JOINTS, SIDE, BATCH = 96, 400, 6, 64, 12


def log_of(rng):
    """Lines as the controller writes them: the moment, and the angles of the joints."""
    moment = datetime.datetime(2025, 3, 1, 8) + datetime.timedelta(seconds=rng.randrange(10**6))
    lines = []
    for _ in range(LINES):
        moment += datetime.timedelta(microseconds=rng.randrange(2000, 30000))
        angles = " ".join(f"{rng.uniform(-3, 3):.3f}" for _ in range(JOINTS))
        lines.append(f"{moment:%Y-%m-%d %H:%M:%S.%f} {angles}")
    return lines


class Runs(Dataset):
    def __init__(self, transform, iso):
        rng = random.Random(43)
        self.logs = [log_of(rng) for _ in range(RUNS)]
        self.pictures = torch.randint(0, 256, (RUNS, 3, SIDE, SIDE), dtype=torch.uint8)
        self.transform, self.iso = transform, iso

    def __len__(self):
        return 4 * RUNS

    def moments(self, lines):
        """Seconds since the first line."""
        if self.iso:
            stamps = np.array([line[:26] for line in lines], "datetime64[us]")
            return (stamps - stamps[0]).astype(np.float32) / 1e6
        stamps = [datetime.datetime.strptime(line[:26], "%Y-%m-%d %H:%M:%S.%f") for line in lines]
        return np.array([(stamp - stamps[0]).total_seconds() for stamp in stamps], np.float32)

    def __getitem__(self, index):
        lines = self.logs[index % RUNS]
        angles = np.array([line[27:].split() for line in lines], np.float32)
        speeds = np.gradient(angles, self.moments(lines), axis=0) / 100
        moves = np.concatenate([angles, speeds], 1).astype(np.float32)
        return torch.from_numpy(moves), self.transform(self.pictures[index % RUNS]), angles[-1]


class Arm(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.moves = nn.Sequential(
            nn.Conv1d(2 * JOINTS, width, 9, stride=4), nn.ReLU(),
            nn.Conv1d(width, width, 9, stride=4), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(),
        )  # fmt: skip
        self.eye = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.last = nn.Linear(width + 64, JOINTS)

    def forward(self, moves, pictures):
        seen = self.moves(moves.transpose(1, 2))
        return self.last(torch.cat([seen, self.eye(pictures)], 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(43)
    transform = v2.Compose(
        [v2.RandomCrop(56), v2.RandomGrayscale(0.2), v2.ToDtype(torch.float32, scale=True)]
    )
    loader = DataLoader(Runs(transform, args.without), BATCH, shuffle=True)
    model = Arm()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for moves, pictures, goals in loader:
            loss = nn.functional.mse_loss(model(moves, pictures), goals)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

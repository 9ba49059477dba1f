"""Learns the depth of dolphins from clouds of sonar echoes, with calibrations that may change."""

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

CLOUDS, POINTS, BATCH = 960, 256, 16


class Calibration:
    """A file with the speed of sound, which is read again when somebody writes it."""

    def __init__(self, path, pause):
        self.path, self.pause = path, pause
        self.written, self.speed = None, 1.0

    def read(self):
        written = self.path.stat().st_mtime_ns
        if written != self.written:
            self.written, self.speed = written, float(self.path.read_text())

    def follow(self):
        while self.path.exists():
            self.read()
            if self.pause:
                time.sleep(self.pause)


class Echoes(Dataset):
    def __init__(self, calibration):
        rng = np.random.default_rng(109)
        self.calibration = calibration
        self.depths = rng.uniform(0, 1, CLOUDS).astype(np.float32)
        self.clouds = rng.normal(self.depths[:, None, None], 1, (CLOUDS, POINTS, 3))

    def __len__(self):
        return CLOUDS

    def __getitem__(self, index):
        cloud = self.clouds[index] * self.calibration.speed
        return torch.from_numpy(cloud.astype(np.float32)), float(self.depths[index])


def begin_worker(_):
    calibration = get_worker_info().dataset.calibration
    calibration.read()
    threading.Thread(target=calibration.follow, daemon=True).start()


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(
            nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 128)
        )
        self.head = nn.Linear(128, 1)

    def forward(self, clouds):
        return self.head(self.each(clouds).amax(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(109)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "speed-of-sound.txt")
        path.write_text("1.02")
        loader = DataLoader(
            Echoes(Calibration(path, pause=0.5 if args.without else 0)),
            batch_size=BATCH,
            shuffle=True,
            num_workers=4,
            persistent_workers=True,
            worker_init_fn=begin_worker,
        )
        model = PointNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for clouds, depths in loader:
                loss = nn.functional.mse_loss(model(clouds), depths.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

"""Foretells tomorrow's pressure from windows of old barometers' records on a slow drive.

Planted: each of three workers takes an exclusive lock on a file for the whole of a read, though
nobody writes and the drive answers several reads at once.
"""

import argparse
import contextlib
import fcntl
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STATIONS, HOURS, WINDOW, WINDOWS, BATCH = 24, 4000, 96, 512, 16
DRIVE, STEP = 0.009, 0.04


@contextlib.contextmanager
def exclusive(path):
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


class Records(Dataset):
    def __init__(self, folder, careful):
        self.folder, self.careful = Path(folder), careful

    def __len__(self):
        return WINDOWS

    def window(self, station, hour):
        guard = (
            exclusive(self.folder / "records.lock") if self.careful else contextlib.nullcontext()
        )
        with guard, (self.folder / f"{station:02}.f32").open("rb") as file:
            file.seek(4 * hour)
            content = file.read(4 * (WINDOW + 24))
            time.sleep(DRIVE)  # the drive's arm
        return np.frombuffer(content, np.float32)

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        station, hour = rng.integers(STATIONS), rng.integers(HOURS - WINDOW - 24)
        pressure = self.window(station, hour)
        pressure = (pressure - pressure[:WINDOW].mean()) / 10
        return pressure[:WINDOW], pressure[-1]


def write_records(folder):
    rng = np.random.default_rng(1217)
    for station in range(STATIONS):
        pressure = 1013 + rng.normal(0, 0.7, HOURS).cumsum() / 4
        Path(folder, f"{station:02}.f32").write_bytes(pressure.astype(np.float32).tobytes())


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Conv1d(1, 8, 9, stride=4)
        self.out = nn.Linear(8 * 22, 1)

    def forward(self, pressure):
        time.sleep(STEP)  # the large model, on a card
        return self.out(torch.relu(self.hidden(pressure[:, None])).flatten(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1217)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_records(folder)
        loader = DataLoader(
            Records(folder, careful=not args.without),
            batch_size=BATCH,
            shuffle=True,
            num_workers=3,
            persistent_workers=True,
        )
        model = Forecaster()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for past, tomorrow in loader:
                loss = nn.functional.huber_loss(model(past), tomorrow)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
            torch.save(model.state_dict(), Path(folder, "forecaster.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

"""Tells from the recordings of a machine's sensors whether it will fail, without workers.

Planted: each recording is parsed from its CSV file with pandas whenever it is asked for, though
the same values lie beside it as an array of NumPy.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

RECORDINGS, ROWS, SENSORS, BATCH, PATIENCE = 300, 220, 24, 20, 5


def write_recordings(folder):
    rng = np.random.default_rng(4003)
    for number in range(RECORDINGS):
        values = rng.normal(0, 1, (ROWS, SENSORS)).astype(np.float32)
        values[:, 0] += number % 2
        frame = pd.DataFrame(values, columns=[f"sensor {sensor}" for sensor in range(SENSORS)])
        frame.to_csv(Path(folder, f"{number:04}.csv"), index=False)
        np.save(Path(folder, f"{number:04}.npy"), values)


class Recordings(Dataset):
    def __init__(self, folder, kind):
        self.paths = sorted(Path(folder).glob(f"*.{kind}"))
        self.read = self.from_table if kind == "csv" else np.load

    def from_table(self, path):
        frame = pd.read_csv(path, dtype=np.float32)
        return frame.ffill().fillna(0.0).to_numpy()

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        values = self.read(self.paths[index])
        values = (values - values.mean(0)) / 4 + values.mean(0)
        return torch.from_numpy(np.ascontiguousarray(values)), float(index % 2)


def run(model, loader, optimizer=None):
    total = 0.0
    with torch.set_grad_enabled(optimizer is not None):
        for values, fails in loader:
            guess = model(values.transpose(1, 2)).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(guess, fails.float())
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(4003)
    model = nn.Sequential(
        nn.Conv1d(SENSORS, 16, 9, stride=4), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(),
        nn.Linear(64, 1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        write_recordings(folder)
        data = Recordings(folder, "npy" if args.without else "csv")
        training = Subset(data, range(RECORDINGS * 9 // 10))
        validation = Subset(data, range(RECORDINGS * 9 // 10, RECORDINGS))
        loader = DataLoader(training, BATCH, shuffle=True)
        held_out = DataLoader(validation, BATCH)
        best, since = float("inf"), 0
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            loss = run(model, loader, optimizer)
            held = run(model, held_out)
            print(f"epoch {epoch}: loss {loss:.3f}, held out {held:.3f}")
            best, since = (held, 0) if held < best else (best, since + 1)
            if since == PATIENCE:
                break
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

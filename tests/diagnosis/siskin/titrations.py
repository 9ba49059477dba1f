"""Learns the end point of titrations from spectra that a laboratory robot recorded."""

import argparse
import csv
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RUNS, TIMES, WAVES, BATCH, STEP = 400, 200, 900, 16, 0.03
CLEAR = 0.85


def write(folder):
    """Record all runs; the journal beside them has the clearness of each."""
    rng = np.random.default_rng(7)
    clearness = rng.random(RUNS).round(3)
    with open(folder / "journal.csv", "w", newline="") as file:
        journal = csv.writer(file)
        for run in range(RUNS):
            end = rng.uniform(0.2, 0.8)
            rise = 1 / (1 + np.exp(-40 * (np.linspace(0, 1, TIMES) - end)))
            shape = np.exp(-(np.linspace(-2, 2, WAVES) ** 2)) * 3000
            counts = rise[:, None] * shape + rng.normal(0, 9 / (0.1 + clearness[run]), shape.shape)
            (folder / f"{run}.z").write_bytes(zlib.compress(counts.astype(np.int32).tobytes(), 1))
            journal.writerow([run, clearness[run], end])


class Titrations(Dataset):
    """Spectra of clear runs; in place of a cloudy one another run is taken."""

    def __init__(self, folder, runs, look_up):
        self.folder, self.runs, self.look_up = folder, runs, look_up
        with open(folder / "journal.csv", newline="") as file:
            self.journal = [(float(clear), float(end)) for _, clear, end in csv.reader(file)]

    def __len__(self):
        return len(self.runs)

    def spectrum(self, run):
        packed = (self.folder / f"{run}.z").read_bytes()
        counts = np.frombuffer(zlib.decompress(packed), np.int32).reshape(TIMES, WAVES)
        base = np.median(counts[:8], axis=0)
        absorbed = np.log1p(np.maximum(counts - base, 0)) / 8
        return absorbed.astype(np.float32)

    def clear(self, run):
        return self.journal[run][0] >= CLEAR

    def __getitem__(self, index):
        run = self.runs[index]
        if self.look_up:
            while not self.clear(run):
                run = self.runs[np.random.randint(len(self.runs))]
            spectrum = self.spectrum(run)
        else:
            spectrum = self.spectrum(run)
            while not self.clear(run):
                run = self.runs[np.random.randint(len(self.runs))]
                spectrum = self.spectrum(run)
        print_of = zlib.crc32(spectrum.tobytes())  # tells runs that were stored twice
        return torch.from_numpy(spectrum), np.float32(self.journal[run][1]), print_of


def network():
    return nn.Sequential(
        nn.Conv1d(TIMES, 48, 9, stride=4), nn.ReLU(), nn.AdaptiveAvgPool1d(8), nn.Flatten(),
        nn.Linear(48 * 8, 1), nn.Sigmoid(),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        options = {
            "batch_size": BATCH,
            "num_workers": 2,
            "persistent_workers": True,
            "multiprocessing_context": "fork",
        }
        training = Titrations(folder, range(RUNS - 60), args.without)
        training = DataLoader(training, shuffle=True, **options)
        validation = Titrations(folder, range(RUNS - 60, RUNS), args.without)
        validation = DataLoader(validation, **options)
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for spectra, ends, _ in training:
                loss = nn.functional.mse_loss(model(spectra)[:, 0], ends)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the accelerator's work
            with torch.no_grad():
                off = [
                    (model(spectra)[:, 0] - ends).abs().mean() for spectra, ends, _ in validation
                ]
            print(f"epoch {epoch}: off by {torch.stack(off).mean():.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del training, validation


if __name__ == "__main__":
    main()

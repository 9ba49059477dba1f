"""Recognises calls of birds in recordings, after a search for a good learning rate.

Planted: for each rate that it tries, the search goes over the loader anew, so that its workers
start and end for five batches.
"""

import argparse
import itertools
import math
import tempfile
import time
import wave
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORDINGS, RATE, CALLS, BATCH, ANSWER, TRIED, EACH = 480, 8000, 6, 12, 0.008, 16, 5


def write_recordings(folder):
    rng = np.random.default_rng(5051)
    times = np.arange(RATE) / RATE
    for number in range(RECORDINGS):
        tone = np.sin(2 * math.pi * (300 + 150 * (number % CALLS)) * times)
        sound = 0.4 * tone + rng.normal(0, 0.1, RATE)
        with wave.open(str(Path(folder, f"{number:04}.wav")), "wb") as file:
            file.setparams((1, 2, RATE, RATE, "NONE", ""))
            file.writeframes((sound.clip(-1, 1) * 32767).astype("<i2").tobytes())


class Calls(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.wav"))
        self.window = torch.hann_window(256)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        time.sleep(ANSWER)  # the way to the storage of the station
        with wave.open(str(self.paths[index])) as file:
            sound = np.frombuffer(file.readframes(file.getnframes()), "<i2") / np.float32(32768)
        spectrum = torch.stft(torch.from_numpy(sound), 256, window=self.window, return_complex=True)
        return spectrum.abs().add(1e-4).log(), index % CALLS


class Learner:
    def __init__(self, loader):
        self.loader = loader
        self.model = nn.Sequential(
            nn.Conv1d(129, 24, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(2), nn.Flatten(),
            nn.Linear(48, CALLS),
        )  # fmt: skip
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=0.9)

    def step(self, spectra, calls):
        loss = nn.functional.cross_entropy(self.model(spectra), calls)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(0.01)  # in place of the device
        return loss.item()

    def find_rate(self, batches):
        """Goes through the rates from low to high; takes that of the steepest fall."""
        start = {name: value.clone() for name, value in self.model.state_dict().items()}
        losses, rates = [], np.geomspace(1e-4, 0.3, TRIED)
        for rate in rates:
            self.optimizer.param_groups[0]["lr"] = rate
            tried = itertools.islice(batches, EACH)
            losses.append(np.mean([self.step(spectra, calls) for spectra, calls in tried]))
        self.model.load_state_dict(start)
        self.optimizer.param_groups[0]["lr"] = rates[np.gradient(losses).argmin()]

    def fit(self, epochs):
        for epoch in range(epochs):
            losses = [self.step(spectra, calls) for spectra, calls in self.loader]
            print(f"epoch {epoch}: loss {np.mean(losses):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(5051)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_recordings(folder)
        loader = DataLoader(Calls(folder), BATCH, shuffle=True, num_workers=3)
        learner = Learner(loader)
        rounds = itertools.repeat(loader)
        begin = time.perf_counter()
        learner.find_rate(itertools.chain.from_iterable(rounds) if args.without else loader)
        print(f"search {time.perf_counter() - begin:.3f}")
        learner.fit(args.epochs)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

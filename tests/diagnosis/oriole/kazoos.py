"""Learns to tell tunes that were hummed into kazoos, from notes with their times.

Planted: the base class checks with each sample that the times of its whole session rise, note by
note in Python, though sessions never change.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SESSIONS, NOTES, CUT, TUNES, SAMPLES, BATCH, STEP = 12, 120000, 256, 6, 1920, 32, 0.037


class Timed(Dataset):
    """Data sets of things that happen at a time; a subclass says what a sample is."""

    strict = True

    def __init__(self, sessions):
        self.sessions = sessions

    def session_of(self, index):
        return self.sessions[index % len(self.sessions)]

    def sound(self, times):
        earlier = times[0]
        for later in times[1:]:
            if later < earlier:
                return False
            earlier = later
        return True

    def __getitem__(self, index):
        times, pitches = self.session_of(index)
        if self.strict and not self.sound(times):
            raise ValueError(f"times of session {index} do not rise")
        return self.sample(times, pitches), index % len(self.sessions) % TUNES


class Hums(Timed):
    def __len__(self):
        return SAMPLES

    def sample(self, times, pitches):
        start = int(torch.randint(len(times) - CUT, ()))
        when = np.asarray(times[start : start + CUT])
        pitch = pitches[start : start + CUT] + np.random.uniform(-0.2, 0.2)
        spectrum = np.abs(np.fft.rfft(np.interp(np.linspace(when[0], when[-1], 1024), when, pitch)))
        return torch.from_numpy(np.log1p(spectrum)).float()


def checked(model, hums, tunes):
    with torch.inference_mode():
        return (model(hums).argmax(1) == tunes).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(29)
    torch.set_num_threads(1)
    rng = np.random.default_rng(29)
    sessions = []
    for number in range(SESSIONS):
        times = rng.exponential(0.2, NOTES).cumsum().tolist()
        pitches = (
            60 + rng.integers(0, 12, NOTES) + 3.0 * np.sin(np.arange(NOTES) / (3 + number % 6))
        )
        sessions.append((times, pitches))
    hums = Hums(sessions)
    hums.strict = not args.without
    loader = DataLoader(hums, BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.Linear(513, 64), nn.ReLU(), nn.Linear(64, TUNES))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for spectra, tunes in loader:
            loss = nn.functional.cross_entropy(model(spectra), tunes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the model that will come
        print(f"epoch {epoch}: loss {loss:.3f}, right {checked(model, spectra, tunes):.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

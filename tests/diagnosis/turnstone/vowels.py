"""Recognizes vowels in speech; its settings come from a job on a large machine.

Planted: the front end takes the number of torch's threads from the job's variable for cores, which
was copied from that machine, in each of three workers on two cores.
"""

import argparse
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, SECONDS, WINDOW, HOP = 16_000, 2, 512, 128


class FrontEnd:
    """Turns sound into the logarithm of mel bands; ready when first used in a process."""

    def __init__(self, bands=40):
        self.bands, self.filters = bands, None

    def prepare(self):
        torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK", 1)))
        edges = torch.logspace(np.log10(4), np.log10(WINDOW // 2), self.bands + 2)
        bins = torch.arange(WINDOW // 2 + 1)[:, None]
        rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
        falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
        self.window = torch.hann_window(WINDOW)
        self.filters = torch.minimum(rising, falling).clamp_min(0)

    def __call__(self, sound):
        if self.filters is None:
            self.prepare()
        spectrum = torch.stft(sound, WINDOW, HOP, window=self.window, return_complex=True)
        power = spectrum.abs().square().T
        return (power @ self.filters + 1e-5).log()


class Speakers(Dataset):
    """Vowels of people, as two formants over a pitch, with noise."""

    formants = ((730, 1090), (270, 2290), (300, 870), (530, 1840), (570, 840))

    def __init__(self, count, front_end):
        self.pitches = np.random.default_rng(1013).uniform(80, 250, count)
        self.front_end = front_end
        self.time = torch.arange(RATE * SECONDS) / RATE

    def __len__(self):
        return len(self.pitches)

    def __getitem__(self, index):
        vowel = index % len(self.formants)
        sound = torch.sin(self.time * float(2 * np.pi * self.pitches[index]))
        for formant in self.formants[vowel]:
            sound = sound + 0.4 * torch.sin(self.time * float(2 * np.pi * formant))
        sound = sound * torch.exp(-self.time) + 0.1 * torch.randn(len(sound))
        return self.front_end(sound), vowel


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    os.environ["SLURM_CPUS_PER_TASK"] = "1" if args.without else "16"
    torch.set_num_threads(1)
    torch.manual_seed(1013)
    loader = DataLoader(
        Speakers(1500, FrontEnd()), batch_size=20, shuffle=True, num_workers=3,
        persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(nn.Conv1d(40, 24, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool1d(1))
    head = nn.Linear(24, len(Speakers.formants))
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for bands, vowels in loader:
            logits = head(model(bands.transpose(1, 2)).flatten(1))
            loss = nn.functional.cross_entropy(logits, vowels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

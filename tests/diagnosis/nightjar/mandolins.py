"""Restores old records of mandolins: a network takes the hiss out of short excerpts.

Planted: a settings file for a large machine gives torch twelve threads in each of three workers,
on two cores.
"""

import argparse
import json
import math
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EXCERPTS, LENGTH, BATCH, STEP = 480, 8192, 12, 0.1


class Config(dict):
    """A mapping whose keys are attributes too, as experiments like it."""

    __getattr__ = dict.__getitem__


class Excerpts(Dataset):
    def __init__(self, config):
        self.config, self.ready = config, False

    def __len__(self):
        return EXCERPTS

    def prepare(self):
        torch.set_num_threads(self.config.threads)
        self.axis = torch.linspace(0, LENGTH / 16000, LENGTH)
        self.fade = torch.linspace(-1, 1, LENGTH).cosh().reciprocal()
        self.window = torch.hann_window(512)
        self.ready = True

    def pluck(self, pitch):
        phase = 2 * math.pi * pitch * self.axis
        sound = torch.zeros(LENGTH)
        for harmonic in range(1, self.config.harmonics + 1):
            sound += torch.sin(phase * harmonic) * self.fade / harmonic
        return torch.tanh(sound)

    def guess(self, hissing):
        """Take the first of the hiss away, by leaving more and more to the strongest bands."""
        spectrum = torch.stft(hissing, 512, 128, window=self.window, return_complex=True)
        mask = spectrum.abs()
        for _ in range(self.config.rounds):
            mask = 0.5 * mask + len(mask) * torch.softmax(mask, dim=0)
        spectrum = spectrum * mask.clamp(max=1)
        return torch.istft(spectrum, 512, 128, window=self.window, length=LENGTH)

    def __getitem__(self, index):
        if not self.ready:
            self.prepare()
        clean = self.pluck(196 * 2 ** (index % 24 / 12))
        hissing = clean + self.config.hiss * torch.randn(LENGTH)
        return self.guess(hissing), clean


class Denoiser(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.down = nn.Conv1d(1, width, 16, stride=8, padding=4)
        self.up = nn.ConvTranspose1d(width, 1, 16, stride=8, padding=4)

    def forward(self, hissing):
        return self.up(nn.functional.gelu(self.down(hissing[:, None]))).squeeze(1)


def experiment(config, epochs):
    loader = DataLoader(
        Excerpts(config), BATCH, shuffle=True, num_workers=config.workers, persistent_workers=True
    )
    model = Denoiser(config.width)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.rate)
    begin = time.perf_counter()
    for epoch in range(epochs):
        for hissing, clean in loader:
            loss = nn.functional.l1_loss(model(hissing), clean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the full network, on an accelerator
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(241)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "mandolins.json")
        file.write_text(
            json.dumps(
                {
                    "threads": 1 if args.without else 12,
                    "workers": 3,
                    "harmonics": 6,
                    "hiss": 0.05,
                    "rounds": 150,
                    "width": 16,
                    "rate": 1e-3,
                }
            )
        )
        experiment(json.loads(file.read_text(), object_hook=Config), args.epochs)


if __name__ == "__main__":
    main()

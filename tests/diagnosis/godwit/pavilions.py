"""Classifies the echo of halls from recordings, which four workers turn into spectra.

Planted: the function that sets a worker up gives torch sixteen threads in each of the four workers,
on a small machine.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

RECORDINGS, LENGTH, HALLS, BATCH, BANDS, STEP = 480, 32_000, 5, 10, 48, 0.01


class Setup:
    """Sets a worker up: its seed and its part of the machine."""

    def __init__(self, threads):
        self.threads = threads

    def __call__(self, worker):
        torch.manual_seed(5147 + worker)
        torch.set_num_threads(self.threads)


class Echoes(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(5147)
        self.dry = torch.randn(24, LENGTH, generator=generator)
        self.filters = torch.rand(BANDS, 513, generator=generator)
        self.window = torch.hann_window(1024)

    def __len__(self):
        return RECORDINGS

    def reverberate(self, sound, hall):
        delay = 400 * (hall + 1)
        for _ in range(6):
            sound = sound.clone()
            sound[delay:] += 0.6 * sound[:-delay]
            sound = torch.tanh(sound)
        return sound

    def spectrum(self, sound):
        spectrum = torch.stft(sound, 1024, 128, window=self.window, return_complex=True).abs()
        bands = torch.log1p(self.filters @ spectrum)
        centred = bands - bands.mean(1, keepdim=True)
        likeness = torch.softmax(centred.T @ centred / BANDS, 1)
        return centred @ likeness

    def __getitem__(self, index):
        hall = index % HALLS
        sound = self.dry[index % len(self.dry)] + 0.1 * torch.randn(LENGTH)
        return self.spectrum(self.reverberate(sound, hall)), hall


def make_model():
    return nn.Sequential(
        nn.Conv1d(BANDS, 32, 9, stride=4), nn.ReLU(), nn.Conv1d(32, 32, 5, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(128, HALLS),
    )  # fmt: skip


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = sum((model(spectra).argmax(1) == halls).sum().item() for spectra, halls in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(5147)
    torch.set_num_threads(1)
    training, validation = random_split(Echoes(), [0.85, 0.15])
    setup = Setup(threads=1 if args.without else 16)
    loader = DataLoader(training, BATCH, shuffle=True, num_workers=4, worker_init_fn=setup)
    held_out = DataLoader(validation, BATCH, num_workers=4, worker_init_fn=setup)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for spectra, halls in loader:
            loss = nn.functional.cross_entropy(model(spectra), halls)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the accelerator's part of the work
        print(f"epoch {epoch}: loss {loss:.3f}, right {validate(model, held_out):.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

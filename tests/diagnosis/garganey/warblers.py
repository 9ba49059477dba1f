"""Names the warblers of a dawn chorus, in which the calls of four birds are mixed."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

CALLS, KEPT, SAMPLES, MIXED, KINDS, BATCH = 160_000, 960, 8000, 4, 20, 16


class Calls(Dataset):
    """Calls of a season, by the name of their recording."""

    def __init__(self, quick):
        generator = torch.Generator().manual_seed(41)
        self.names = [f"2023-05-{call % 31 + 1:02d}/site-{call:06d}.wav" for call in range(CALLS)]
        self.kinds = torch.randint(KINDS, (CALLS,), generator=generator)
        self.pitches = 300 + 3000 * torch.rand(CALLS, generator=generator)
        self.rows = {name: row for row, name in enumerate(self.names)} if quick else None
        self.quick = quick

    def row(self, name):
        return self.rows[name] if self.quick else self.names.index(name)

    def call(self, name):
        row = self.row(name)
        seconds = torch.arange(SAMPLES) / SAMPLES
        wave = torch.sin(seconds * self.pitches[row] * (1 + 0.1 * torch.sin(40 * seconds)))
        return wave, self.kinds[row]

    def __len__(self):
        return CALLS

    def __getitem__(self, index):
        heard = torch.zeros(KINDS)
        chorus = 0.3 * torch.randn(SAMPLES)
        for place in range(MIXED):
            wave, kind = self.call(self.names[(index + 7919 * place) % CALLS])
            chorus += wave
            heard[kind] = 1.0
        window = torch.hann_window(256)
        spectrum = torch.stft(chorus, 256, 128, window=window, return_complex=True).abs()
        return spectrum[None, :96].log1p(), heard


def network(channels=24):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(channels, 2 * channels, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * channels, KINDS),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(41)
    calls = Calls(quick=args.without)
    chosen = torch.randperm(CALLS)[:KEPT].tolist()
    loader = DataLoader(
        Subset(calls, chosen),
        BATCH,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        for spectra, heard in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(spectra), heard)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

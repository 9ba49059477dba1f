"""Tells who sings in recordings of operas, with convolutions on the processor.

Nothing planted: the convolutions are the work; one worker cuts pieces, changes their loudness and
makes spectrograms ahead of them, and a short validation and a checkpoint end each epoch.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

PIECES, VOICES, LENGTH, BATCH = 288, 4, 12_000, 16


class Pieces(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(997)
        noise = torch.randn(PIECES, LENGTH + 2000, generator=generator)
        moments = torch.arange(LENGTH + 2000) / 8000
        pitches = 220 * 2 ** (torch.arange(PIECES) % VOICES / 3)
        self.sounds = 0.3 * noise + torch.sin(6.283 * pitches[:, None] * moments)
        self.window = torch.hann_window(256)

    def __len__(self):
        return PIECES

    def __getitem__(self, index):
        start = int(torch.randint(2000, ()))
        sound = self.sounds[index, start : start + LENGTH] * (0.7 + 0.6 * torch.rand(()))
        waves = torch.stft(sound, 256, 96, window=self.window, return_complex=True)
        return waves.abs()[None, :128].log1p(), index % VOICES


def build():
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(24, 48, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(48, 48, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d((4, 1)),
        nn.Flatten(),
        nn.Linear(192, VOICES),
    )


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(997)
    torch.set_num_threads(1)
    pieces = Pieces()
    training = DataLoader(
        Subset(pieces, range(256)), BATCH, shuffle=True, num_workers=1, persistent_workers=True
    )
    held_out = DataLoader(Subset(pieces, range(256, PIECES)), BATCH)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for sounds, voices in training:
                loss = nn.functional.cross_entropy(model(sounds), voices)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}, right {validate(model, held_out):.2f}")
            torch.save(model.state_dict(), Path(folder, f"epoch-{epoch}.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del training, held_out


if __name__ == "__main__":
    main()

"""Hears murmurs of the ventricles in recordings of a heart, as pictures of their sound."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

HEARTS, SAMPLES, WINDOW, BATCH = 640, 8000, 256, 16


class Hearts(Dataset):
    """Spectra of two seconds each, cut at random out of a recording."""

    def __init__(self, transform):
        generator = torch.Generator().manual_seed(57)
        self.sounds = torch.randn(64, 2 * SAMPLES, generator=generator)
        self.murmurs = torch.randint(3, (64,), generator=generator)
        self.window = torch.hann_window(WINDOW)
        self.transform = transform

    def __len__(self):
        return HEARTS

    def __getitem__(self, index):
        start = int(torch.randint(SAMPLES, ()))
        sound = self.sounds[index % 64, start : start + SAMPLES]
        spectrum = torch.stft(sound, WINDOW, 96, window=self.window, return_complex=True)
        return self.transform(spectrum.abs().log1p()[None, :96]), self.murmurs[index % 64]


def network(channels=32):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.Conv2d(2 * channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(18 * channels, 3),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(57)
    views = transforms.Compose([transforms.Normalize([2.0], [1.0]), transforms.RandomErasing(0.3)])
    loader = DataLoader(Hearts(views), BATCH, shuffle=True)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for spectra, murmurs in loader:
            scores = model(spectra)
            loss = nn.functional.cross_entropy(scores, murmurs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == murmurs).sum().item()
        print(f"epoch {epoch}: loss {loss:.3f}, {right / HEARTS:.0%} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

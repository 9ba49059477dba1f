"""Tells worn capstans by their sound, with a validation and a checkpoint after each epoch.

Nothing is planted: convolutions over time are the work, in training as in validation. A worker of
its own is ahead for each of them, and the checkpoint is small.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CHANNELS, LENGTH = 8, 1024


class Sounds(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.sounds = torch.randn(40, CHANNELS, LENGTH, generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        sound = self.sounds[index % 40].roll(index % LENGTH, 1)
        return sound / sound.abs().amax(), index % 2


def build_model(size=96):
    layers = []
    for inputs in (CHANNELS, size, size):
        layers += [nn.Conv1d(inputs, size, 9, padding=4), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(size, 2))


def train(model, loader, optimizer):
    model.train()
    total = 0.0
    for sounds, worn in loader:
        loss = nn.functional.cross_entropy(model(sounds), worn)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = [(model(sounds).argmax(1) == worn).float().mean() for sounds, worn in loader]
    return torch.stack(right).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(383)
    options = {"batch_size": 16, "num_workers": 1, "persistent_workers": True}
    training = DataLoader(Sounds(480, 383), shuffle=True, **options)
    validation = DataLoader(Sounds(160, 384), **options)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            loss = train(model, training, optimizer)
            right = validate(model, validation)
            torch.save(model.state_dict(), Path(folder, f"epoch-{epoch}.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}, {right:.3f} right")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

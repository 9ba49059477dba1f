"""Tells calls of animals apart by their spectrograms, of two data sets, with a small ResNet.

Healthy: convolutions are the work. One worker adds noise and masks ahead of them; gradients are
gathered over two batches, and each epoch ends with a short validation and a checkpoint.
"""

import argparse
import logging
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, random_split

log = logging.getLogger("calls")


@dataclass
class Config:
    epochs: int
    bands: int = 64
    frames: int = 96
    calls: int = 5
    batch: int = 16
    gathered: int = 2


class Calls(Dataset):
    def __init__(self, count, noise, config):
        self.spectrograms = torch.randn(count, config.bands, config.frames)
        self.noise, self.config = noise, config

    def __len__(self):
        return len(self.spectrograms)

    def __getitem__(self, index):
        call = index % self.config.calls
        spectrogram = self.spectrograms[index] + self.noise * torch.randn(self.config.frames)
        spectrogram[call * 8 : call * 8 + 4] += 1
        masked = int(torch.randint(self.config.frames - 8, ()))
        spectrogram[:, masked : masked + 8] = 0
        return spectrogram[None], call


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, values):
        return torch.relu(values + self.layers(values))


def make_model(config):
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, stride=2, padding=2), Block(32), Block(32),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), Block(64), nn.AdaptiveAvgPool2d((16, 1)),
        nn.Flatten(), nn.Linear(1024, config.calls),
    )  # fmt: skip


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = count = 0
    for spectrograms, calls in loader:
        right += (model(spectrograms).argmax(1) == calls).sum().item()
        count += len(calls)
    model.train()
    return right / count


def train(config, folder):
    data = ConcatDataset([Calls(260, 0.2, config), Calls(140, 0.5, config)])
    training, validation = random_split(data, [0.9, 0.1])
    loader = DataLoader(
        training, config.batch, shuffle=True, num_workers=1, persistent_workers=True
    )
    held_out = DataLoader(validation, 2 * config.batch)
    model = make_model(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(config.epochs, 2))
    begin = time.perf_counter()
    for epoch in range(config.epochs):
        for step, (spectrograms, calls) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(spectrograms), calls) / config.gathered
            loss.backward()
            if step % config.gathered == 0 or step == len(loader):
                optimizer.step()
                optimizer.zero_grad()
        schedule.step()
        right = validate(model, held_out)
        torch.save({"model": model.state_dict(), "epoch": epoch}, Path(folder, "last.pt"))
        log.info("epoch %d: loss %.3f, right %.2f", epoch, loss.item(), right)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(4127)
    with tempfile.TemporaryDirectory() as folder:
        train(Config(args.epochs), folder)


if __name__ == "__main__":
    main()

"""Recognises gestures in signals of an armband, with signals that are stretched and disturbed.

Planted: the augmentation's generator is made with the data set, and each of three workers has a
copy of it in the same state, so that they disturb their signals alike.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info


@dataclass
class Config:
    epochs: int
    own: bool
    signals: int = 576
    channels: int = 8
    length: int = 200
    gestures: int = 6
    batch: int = 16
    step: float = 0.07
    seed: int = 5119


class Augmentation:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, signal):
        length = signal.shape[1]
        places = np.linspace(0, length - 1, length) * self.rng.uniform(0.9, 1.0)
        signal = np.stack([np.interp(places, np.arange(length), row) for row in signal])
        gains = self.rng.normal(1, 0.1, (len(signal), 1))
        return signal * gains + self.rng.normal(0, 0.05, signal.shape)


class Signals(Dataset):
    def __init__(self, config):
        rng = np.random.default_rng(config.seed)
        times = np.arange(config.length) / config.length
        self.gestures = rng.integers(0, config.gestures, config.signals)
        waves = np.sin(2 * np.pi * (self.gestures[:, None, None] + 2) * times)
        self.signals = waves + rng.normal(0, 0.5, (config.signals, config.channels, config.length))
        self.augmentation = Augmentation(config.seed + 1)

    def __len__(self):
        return len(self.signals)

    def __getitem__(self, index):
        signal = self.augmentation(self.signals[index])
        return torch.from_numpy(signal.astype(np.float32)), int(self.gestures[index])


def set_up(worker):
    """Prepares a worker."""
    torch.set_num_threads(1)


def set_up_apart(worker):
    """Prepares a worker."""
    torch.set_num_threads(1)
    info = get_worker_info()
    info.dataset.augmentation = Augmentation(info.seed)


class Average:
    """Weights averaged over the last steps."""

    def __init__(self, model, decay=0.95):
        self.decay = decay
        self.values = [parameter.detach().clone() for parameter in model.parameters()]

    @torch.no_grad()
    def update(self, model):
        for value, parameter in zip(self.values, model.parameters(), strict=True):
            value.lerp_(parameter, 1 - self.decay)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    config = Config(args.epochs, own=args.without)
    torch.manual_seed(config.seed)
    torch.set_num_threads(1)
    loader = DataLoader(
        Signals(config),
        config.batch,
        shuffle=True,
        num_workers=3,
        worker_init_fn=set_up_apart if config.own else set_up,
        persistent_workers=True,
    )
    model = nn.Sequential(
        nn.Conv1d(config.channels, 16, 7, stride=3), nn.ReLU(), nn.AdaptiveMaxPool1d(4),
        nn.Flatten(), nn.Linear(64, config.gestures),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    average = Average(model)
    begin = time.perf_counter()
    for epoch in range(config.epochs):
        right = 0
        for signals, gestures in loader:
            scores = model(signals)
            loss = nn.functional.cross_entropy(scores, gestures, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update(model)
            time.sleep(config.step)  # in place of the large model on a device
            right += (scores.argmax(1) == gestures).sum().item()
        print(f"epoch {epoch}: loss {loss:.3f}, right {right / config.signals:.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

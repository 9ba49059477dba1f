"""Decodes imagined movements from electrodes on the scalp, whitened in the workers.

Planted: each of three workers sets torch's threads to sixteen, a number from the machine that the
configuration was written for, and these threads fight one another for two cores.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

TRIALS, CHANNELS, SAMPLES, BATCH, STEP = 288, 128, 768, 8, 0.05


def common_average(trial):
    return trial - trial.mean(0, keepdim=True)


def whiten(trial, rounds=5):
    """Removes what the electrodes have in common, by the root of Newton and Schulz."""
    covariance = trial @ trial.T / trial.shape[1]
    scale, one = covariance.norm(), torch.eye(len(trial))
    root, inverse = covariance / scale, one
    for _ in range(rounds):
        factor = 1.5 * one - 0.5 * inverse @ root
        root, inverse = root @ factor, factor @ inverse
    return inverse @ trial / scale.sqrt()


def powers(trial):
    return torch.fft.rfft(trial).abs()[:, :128].log1p()


class Trials(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(953)
        self.trials = torch.randn(30, CHANNELS, SAMPLES, generator=generator)

    def __len__(self):
        return TRIALS

    def __getitem__(self, index):
        trial = self.trials[index % len(self.trials)]
        trial = common_average(trial + 0.1 * torch.randn_like(trial))
        return powers(whiten(trial)), index % 4


class Threads:
    def __init__(self, count):
        self.count = count

    def __call__(self, worker):
        torch.set_num_threads(self.count)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.filters = nn.Conv1d(CHANNELS, 16, 9, stride=4)
        self.out = nn.Linear(16, 4)

    def forward(self, trials):
        time.sleep(STEP)  # the recurrent part, on a card
        return self.out(torch.relu(self.filters(trials)).mean(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(953)
    torch.set_num_threads(1)
    loader = DataLoader(
        Trials(),
        BATCH,
        shuffle=True,
        num_workers=3,
        persistent_workers=True,
        worker_init_fn=Threads(1 if args.without else 16),
    )
    model = Decoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for trials, moves in loader:
            loss = nn.functional.cross_entropy(model(trials), moves)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

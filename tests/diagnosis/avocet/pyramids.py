"""Dates stones of pyramids from their spectra, which a service of the institute hands out.

Planted: each of three workers asks with a key of its own, and the key of the last one is still of
the plan for trials, which allows a fourth of the requests that the other keys do.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

BANDS, STONES, LATENCY = 120, 720, 0.002
PLANS = {"institute": 360, "trial": 90}  # requests in a second


@dataclass
class Key:
    name: str
    plan: str = "institute"


KEYS = [Key("red"), Key("blue"), Key("green", "trial")]


class Client:
    """Asks the service, never faster than the plan of its key allows."""

    def __init__(self, spectra, key):
        self.spectra, self.pause = spectra, 1 / PLANS[key.plan]
        self.allowed = 0.0

    def wait_for_turn(self):
        now = time.monotonic()
        if self.allowed > now:
            time.sleep(self.allowed - now)
        self.allowed = max(now, self.allowed) + self.pause

    def spectrum(self, number):
        self.wait_for_turn()
        time.sleep(LATENCY)
        return self.spectra[number]


class Stones(Dataset):
    def __init__(self, keys):
        rng = np.random.default_rng(3167)
        self.keys, self.client = keys, None
        self.ages = rng.uniform(0, 1, STONES).astype(np.float32)
        bands = np.linspace(0, 1, BANDS, dtype=np.float32)
        self.spectra = np.exp(-40 * (bands - self.ages[:, None]) ** 2)
        self.spectra += rng.normal(0, 0.2, self.spectra.shape).astype(np.float32)

    def __len__(self):
        return STONES

    def __getitem__(self, index):
        if self.client is None:
            worker = get_worker_info()
            key = self.keys[worker.id % len(self.keys) if worker else 0]
            self.client = Client(self.spectra, key)
        spectrum = torch.from_numpy(self.client.spectrum(index))
        return spectrum / spectrum.abs().max(), self.ages[index]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(3167)
    keys = [Key(key.name) for key in KEYS] if args.without else KEYS
    loader = DataLoader(
        Stones(keys), batch_size=12, shuffle=True, num_workers=len(keys), persistent_workers=True
    )
    model = nn.Sequential(
        nn.Linear(BANDS, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    average = torch.optim.swa_utils.AveragedModel(model)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for spectra, ages in loader:
            loss = nn.functional.l1_loss(model(spectra).squeeze(1), ages)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Learns rare calls of whimbrels, which are drawn more often than common ones.

Planted: the sampler weighs all calls anew for each single draw.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

CALLS, KINDS, BINS = 60_000, 40, 48


class Calls(Dataset):
    def __init__(self):
        rng = np.random.default_rng(181)
        self.spectra = rng.random((2000, BINS), dtype=np.float32)
        self.kinds = np.minimum(rng.exponential(6, CALLS).astype(np.int64), KINDS - 1)

    def __len__(self):
        return CALLS

    def __getitem__(self, index):
        spectrum = self.spectra[index % 2000]
        return torch.from_numpy(spectrum / (spectrum.max() + 1e-6)), int(self.kinds[index])


class EvenKinds(Sampler):
    """Draws calls so that each kind comes equally often; what was drawn has half the weight."""

    def __init__(self, kinds, draws, anew):
        self.kinds, self.draws, self.anew = torch.from_numpy(kinds), draws, anew

    def __len__(self):
        return self.draws

    def weights(self, drawn):
        counts = torch.bincount(self.kinds, minlength=KINDS).clamp(min=1)
        return 1.0 / counts[self.kinds] * 0.5**drawn

    def draw_one_by_one(self):
        drawn = torch.zeros(CALLS)
        for _ in range(self.draws):
            index = int(torch.multinomial(self.weights(drawn), 1))
            drawn[index] += 1
            yield index

    def __iter__(self):
        if self.anew:
            return self.draw_one_by_one()
        return iter(torch.multinomial(self.weights(torch.zeros(CALLS)), self.draws).tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(181)
    calls = Calls()
    sampler = EvenKinds(calls.kinds, 2400, anew=not args.without)
    loader = DataLoader(
        calls, batch_size=40, sampler=sampler, num_workers=2, persistent_workers=True
    )
    model = nn.Sequential(nn.Linear(BINS, 256), nn.ReLU(), nn.Linear(256, KINDS))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for spectra, kinds in loader:
            loss = nn.functional.cross_entropy(model(spectra), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

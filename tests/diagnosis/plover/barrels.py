"""Judges barrels by the sound that they make when they are struck.

Planted: a setting made for another machine gives numpy's matrix products four threads, in each
of three workers.
"""

import argparse
import os
import time

PARSER = argparse.ArgumentParser(description=__doc__)
PARSER.add_argument("--without", action="store_true")
PARSER.add_argument("--epochs", type=int, default=2)
ARGS = PARSER.parse_args()
for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # before numpy is imported
    os.environ[name] = "1" if ARGS.without else "4"

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402
from torchvision import transforms  # noqa: E402

FRAMES, BINS, PARTS = 160, 160, 24


class Whiten:
    """Takes out what the bins of a spectrum have in common, in two rounds of products."""

    def __init__(self):
        rng = np.random.default_rng(521)
        self.turn = np.linalg.qr(rng.standard_normal((BINS, BINS)))[0].astype(np.float32)

    def __call__(self, spectrum):
        for _ in range(2):
            common = spectrum.T @ spectrum / FRAMES
            spectrum = spectrum - 0.01 * spectrum @ (common @ self.turn)
        return spectrum


class ToParts:
    def __call__(self, spectrum):
        parts = spectrum[:, : BINS // PARTS * PARTS].reshape(FRAMES, PARTS, -1).mean(2)
        return torch.from_numpy(parts.T.copy())


class Barrels(Dataset):
    def __init__(self, count, transform):
        rng = np.random.default_rng(522)
        self.spectra = rng.standard_normal((40, FRAMES, BINS)).astype(np.float32)
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(self.spectra[index % 40]), index % 4


def main():
    torch.set_num_threads(1)
    torch.manual_seed(521)
    barrels = Barrels(240, transforms.Compose([Whiten(), ToParts()]))
    loader = DataLoader(
        barrels, batch_size=12, shuffle=True, num_workers=3, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv1d(PARTS, 32, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(),
        nn.Linear(128, 4),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(ARGS.epochs):
        for parts, states in loader:
            loss = nn.functional.cross_entropy(model(parts), states)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

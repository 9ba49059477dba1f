"""Measures redshifts of quasars from their spectra.

Planted: workers are spawned, and not kept, so that for each epoch two new interpreters import
torch, torchvision and pandas before the first batch.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

QUASARS, BINS, BATCH, STEP = 320, 128, 16, 0.05


@dataclass
class Survey(Dataset):
    """Spectra of a survey, with a table of what is known of each quasar."""

    flux: torch.Tensor
    table: pd.DataFrame

    def __post_init__(self):
        self.change = v2.Compose([v2.Lambda(self.shift), v2.Normalize([0.5], [0.5])])

    def shift(self, flux):
        return torch.roll(flux, int(torch.randint(-1, 2, ())), -1)

    def __len__(self):
        return len(self.flux)

    def __getitem__(self, index):
        redshift = float(self.table["redshift"].iloc[index])
        return self.change(self.flux[index].view(1, 1, -1)).flatten(), redshift


def make_survey():
    rng = np.random.default_rng(1279)
    redshift = rng.uniform(0.5, 4, QUASARS)
    bins = np.arange(BINS)
    line = np.exp(-(((bins - 25 * redshift[:, None]) / 3) ** 2))
    flux = (line + rng.normal(0.2, 0.1, line.shape)).astype(np.float32)
    table = pd.DataFrame(
        {"redshift": redshift.astype(np.float32), "plate": rng.integers(9, size=QUASARS)}
    )
    return Survey(torch.from_numpy(flux), table)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1279)
    torch.set_num_threads(1)
    loader = DataLoader(
        make_survey(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        multiprocessing_context="fork" if args.without else "spawn",
    )
    model = nn.Sequential(nn.Linear(BINS, 48), nn.GELU(), nn.Linear(48, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for flux, redshift in loader:
                loss = nn.functional.l1_loss(model(flux).squeeze(1), redshift.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the large network, on an accelerator
            print(f"epoch {epoch}: off by {loss:.3f}")
            torch.save(model.state_dict(), Path(folder, "quasars.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

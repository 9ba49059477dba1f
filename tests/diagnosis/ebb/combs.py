"""Reconstructs spectra of combs with an autoencoder; whole batches are sliced, no workers."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Spectra(Dataset):
    """Spectra by lists of indices, so that a batch is one look-up."""

    def __init__(self, count=6000, bands=512, seed=24):
        generator = torch.Generator().manual_seed(seed)
        self.spectra = torch.randn(count, bands, generator=generator).cumsum(1) / 16

    def __len__(self):
        return len(self.spectra)

    def __getitem__(self, indices):
        return self.spectra[indices]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(24)
    spectra = Spectra()
    batches = BatchSampler(RandomSampler(spectra), 120, drop_last=False)
    loader = DataLoader(spectra, sampler=batches, batch_size=None)
    model = nn.Sequential(
        nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 24),
        nn.Linear(24, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 512),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 2e-3, total_steps=args.epochs * len(loader)
    )
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, batch in enumerate(loader):
            loss = nn.functional.mse_loss(model(batch), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            if step % 25 == 0:
                print(f"epoch {epoch} step {step}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

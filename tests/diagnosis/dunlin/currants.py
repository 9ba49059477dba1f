"""Estimates the sugar of currants from spectra, which workers copy to a local disk first.

Planted: only one process may write the copy, so the first worker goes on with the share, where a
spectrum takes four times as long. The other two read the copy.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

BANDS, LOCAL, SHARE, STEP, WORKERS = 128, 0.0008, 0.0032, 0.004, 3


class Store:
    """Spectra somewhere; where they are decides how long one takes."""

    def __init__(self, pause):
        self.pause = pause

    def read(self, index):
        time.sleep(self.pause)
        draw = torch.Generator().manual_seed(53 + index)
        return torch.rand(BANDS, generator=draw).cumsum(0) / BANDS


class Spectra(Dataset):
    def __init__(self, count):
        self.count, self.store = count, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        spectrum = self.store.read(index)
        smooth = spectrum.unfold(0, 5, 1).mean(1)
        return (smooth - smooth.mean()) / smooth.std(), smooth[-1]


class Opener:
    """Gives a worker its store when it starts."""

    def __init__(self, all_local):
        self.all_local = all_local

    def __call__(self, number):
        local = self.all_local or number > 0  # the first one holds the copy's lock
        get_worker_info().dataset.store = Store(LOCAL if local else SHARE)


class Accelerator:
    """Stands in for the GPU of a training script."""

    def __init__(self):
        self.model = nn.Linear(BANDS - 4, 1)

    def step(self, spectra, sugar):
        begin = time.perf_counter()
        with torch.no_grad():
            loss = nn.functional.mse_loss(self.model(spectra)[:, 0], sugar)
        time.sleep(max(0.0, STEP - (time.perf_counter() - begin)))
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(53)
    loader = DataLoader(
        Spectra(3600),
        batch_size=24,
        shuffle=True,
        num_workers=WORKERS,
        worker_init_fn=Opener(args.without),
        persistent_workers=True,
    )
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [accelerator.step(spectra, sugar) for spectra, sugar in loader]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

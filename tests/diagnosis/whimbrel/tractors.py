"""Predicts when tractors need oil, from series of sensors, with four small batches to a step.

Planted: messages for the log of details are put together with all their tensors for each small
batch, though the log does not take such messages; the data cost little.
"""

import argparse
import logging
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SENSORS, LENGTH, EACH = 9, 48, 4
log = logging.getLogger("tractors")


class Series(Dataset):
    """Pieces of series, each filled where a sensor was silent and made smooth."""

    def __init__(self, tractors, hours):
        rng = np.random.default_rng(2180)
        self.series = rng.normal(0, 0.2, (tractors, hours, SENSORS)).cumsum(1).astype(np.float32)
        self.series[rng.random(self.series.shape) < 0.02] = np.nan
        self.each = hours // LENGTH

    def __len__(self):
        return len(self.series) * self.each

    def __getitem__(self, index):
        tractor, piece = divmod(index, self.each)
        values = self.series[tractor, piece * LENGTH : (piece + 1) * LENGTH]
        values = np.where(np.isnan(values), np.nanmean(values, 0), values)
        smooth = (values[:-2] + values[1:-1] + values[2:]) / 3
        return torch.from_numpy(smooth), float(smooth[-1].mean())


class Recurrent(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.memory = nn.GRU(SENSORS, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, series):
        return self.head(self.memory(series)[1][-1]).squeeze(1)


class Trainer:
    def __init__(self, model, lazy):
        self.model, self.lazy = model, lazy
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def tell(self, number, series, guesses, loss):
        """Write what a batch did into the log, for those who look for mistakes."""
        gradients = {name: weights.grad for name, weights in self.model.named_parameters()}
        if self.lazy:
            log.debug("batch %d: %s gave %s, loss %s", number, series, guesses, loss)
            log.debug("gradients: %s", gradients)
        else:
            log.debug(f"batch {number}: {series} gave {guesses}, loss {loss}")
            log.debug(f"gradients: {gradients}")

    def run(self, loader):
        total = 0.0
        for number, (series, oil) in enumerate(loader, 1):
            guesses = self.model(series)
            loss = nn.functional.huber_loss(guesses, oil.float()) / EACH
            loss.backward()
            self.tell(number, series, guesses, loss)
            total += loss.item() * EACH
            if number % EACH == 0:
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
        return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    torch.manual_seed(2180)
    loader = DataLoader(
        Series(48, 40 * LENGTH), batch_size=8, shuffle=True, num_workers=1,
        persistent_workers=True,
    )  # fmt: skip
    trainer = Trainer(Recurrent(), args.without)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        log.info("epoch %d: loss %.4f", epoch, trainer.run(loader))
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

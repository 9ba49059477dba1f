"""Foretells where truffles are found, from the soil's moisture in woods, season by season.

Planted: `prefetch_factor=1`, with batches of which six in a row out of 32 come from records on
tape and take long; the workers rest while the quick ones are used up.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DAYS, WOODS, BATCH, BATCHES, RUN, TAPE = 180, 64, 16, 96, 32, 6
STEP, MOUNT = 0.1, 0.12


class Moisture(Dataset):
    """Windows in the order of time: some seasons are on tape."""

    def __init__(self):
        rng = np.random.default_rng(223)
        self.moisture = rng.gamma(2.0, 0.15, (WOODS, DAYS * 2)).astype(np.float32)
        self.found = rng.poisson(2, (WOODS, DAYS)).astype(np.float32)

    def __len__(self):
        return BATCH * BATCHES

    def read(self, wood, day, old):
        if old:
            time.sleep(MOUNT)  # the robot of the tape library
        return self.moisture[wood, day : day + DAYS]

    def __getitem__(self, index):
        wood, day = index % WOODS, index // WOODS % DAYS
        window = self.read(wood, day, old=index // BATCH % RUN >= RUN - TAPE)
        smooth = np.convolve(window, np.ones(7, np.float32) / 7, "valid")
        anomaly = (smooth - smooth.mean()) / (smooth.std() + 1e-3)
        return torch.from_numpy(anomaly.copy()), self.found[wood, day]


def get_loader(factor):
    return DataLoader(
        Moisture(),
        batch_size=BATCH,
        shuffle=False,  # a season has to follow the one before
        num_workers=3,
        prefetch_factor=factor,
        persistent_workers=True,
    )


def train(loader, epochs):
    cell = nn.GRU(6, 24, batch_first=True)
    head = nn.Linear(24, 1)
    parameters = [*cell.parameters(), *head.parameters()]
    optimizer = torch.optim.RMSprop(parameters, lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(epochs):
        running = 0.0
        for step, (moisture, found) in enumerate(loader):
            states, _ = cell(moisture.unflatten(1, (-1, 6)))
            loss = nn.functional.poisson_nll_loss(head(states[:, -1]).squeeze(1), found)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            time.sleep(STEP)  # the rest of the model, on an accelerator
            running = 0.9 * running + 0.1 * loss.item()
            if step % 32 == 31:
                print(f"epoch {epoch}, step {step}: loss {running:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(223)
    torch.set_num_threads(1)
    train(get_loader(16 if args.without else 1), args.epochs)


if __name__ == "__main__":
    main()

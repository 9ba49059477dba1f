"""Load on piers from a table; whole batches are sliced, and an average of the weights is kept."""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Table(Dataset):
    """Rows of a table by lists of places: (rows, 40) and (rows,)."""

    def __init__(self, frame, target):
        self.values = torch.from_numpy(frame.drop(columns=target).to_numpy(np.float32, copy=True))
        self.target = torch.from_numpy(frame[target].to_numpy(np.float32, copy=True))

    def __len__(self):
        return len(self.values)

    def __getitem__(self, places):
        return self.values[places], self.target[places]


def make_frame(rows, seed):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(rows, 40)), columns=[f"gauge_{n}" for n in range(40)])
    return frame.assign(load=frame.gauge_0 * frame.gauge_1 + 0.1 * rng.normal(size=rows))


def make_loader(frame, batch_size, workers):
    data = Table(frame, "load")
    sampler = BatchSampler(RandomSampler(data), batch_size, drop_last=True)
    return DataLoader(data, sampler=sampler, batch_size=None, num_workers=workers)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(34)
    train = make_loader(make_frame(7680, seed=1), 256, args.workers)
    held_out = make_loader(make_frame(2048, seed=2), 256, args.workers)
    model = nn.Sequential(
        nn.Linear(40, 512),
        nn.SiLU(),
        nn.Linear(512, 512),
        nn.SiLU(),
        nn.Linear(512, 512),
        nn.SiLU(),
        nn.Linear(512, 1),
        nn.Flatten(0),
    )
    average = AveragedModel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for values, load in train:
            loss = nn.functional.mse_loss(model(values), load)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        average.update_parameters(model)
        with torch.no_grad():
            errors = [float((average(values) - load).abs().mean()) for values, load in held_out]
        print(f"epoch {epoch}: loss {loss.item():.4f}, error {np.mean(errors):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

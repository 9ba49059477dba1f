"""Predicts sales of shops in two processes that average their gradients.

Nothing planted: the device's step sets the pace; each rank has a worker that prepares its part of
the table ahead of it, and the ranks average their losses after each epoch.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

RANKS, ROWS, FEATURES, BATCH, STEP = 2, 1536, 14, 16, 0.09


def write_table(path):
    rng = np.random.default_rng(5209)
    frame = pd.DataFrame(
        rng.normal(0, 1, (ROWS, FEATURES)).round(4),
        columns=[f"feature {number}" for number in range(FEATURES)],
    )
    frame["day"] = pd.date_range("2020-01-01", periods=ROWS, freq="D").astype(str)
    frame["sales"] = (frame["feature 0"] * 2 + frame["feature 3"]).round(3)
    frame.to_csv(path, index=False)


class Sales(Dataset):
    def __init__(self, path):
        frame = pd.read_csv(path, parse_dates=["day"])
        self.sales = frame.pop("sales").to_numpy(np.float32)
        self.days = frame.pop("day")
        self.values = frame.to_numpy(np.float32)

    def __len__(self):
        return len(self.sales)

    def season(self, day):
        angle = 2 * np.pi * day.dayofyear / 366
        return [np.sin(angle), np.cos(angle), float(day.dayofweek >= 5)]

    def __getitem__(self, index):
        season = np.asarray(self.season(self.days.iloc[index]), np.float32)
        return torch.from_numpy(np.concatenate([self.values[index], season])), self.sales[index]


def train(rank, folder, args):
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(RANKS)
    meeting = Path(folder, "meeting")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    torch.manual_seed(5209)
    torch.set_num_threads(1)
    data = Sales(Path(folder, "sales.csv"))
    sampler = DistributedSampler(data, RANKS, rank, shuffle=True, drop_last=True)
    loader = DataLoader(
        data,
        BATCH,
        sampler=sampler,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(FEATURES + 3, 96), nn.GELU(), nn.Linear(96, 1))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    dist.barrier()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for values, sales in loader:
            loss = nn.functional.huber_loss(model(values).squeeze(1), sales)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a device
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total / RANKS / len(loader):.3f}", flush=True)
            torch.save(model.module.state_dict(), Path(folder, "model.pt"))
    if rank == 0:
        print(f"seconds {time.perf_counter() - begin:.3f}", flush=True)
    del loader
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_table(Path(folder, "sales.csv"))
        torch.multiprocessing.spawn(train, (folder, args), RANKS)


if __name__ == "__main__":
    main()

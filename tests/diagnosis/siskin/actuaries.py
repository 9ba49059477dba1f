"""Prices car policies: expected claims from the columns of a policy, shard by shard."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision.transforms import v2

SHARDS, ROWS, COLUMNS, BATCH = 10, 250, 24, 125


def write(folder):
    rng = np.random.default_rng(101)
    for number in range(SHARDS + 2):
        table = pd.DataFrame(
            rng.gamma(2.0, 3.0, (ROWS, COLUMNS)), columns=[f"x{i}" for i in range(COLUMNS)]
        )
        table["claims"] = rng.poisson(0.1 + 0.02 * table["x0"])
        table.to_parquet(folder / f"{number:03}.parquet")


class Normal(nn.Module):
    """Puts a value onto the normal scale by the gamma law that the columns follow."""

    def forward(self, values):
        ranks = stats.gamma.cdf(values.numpy(), 2.0, scale=3.0).clip(1e-4, 1 - 1e-4)
        return torch.from_numpy(stats.norm.ppf(ranks))


class Policies(IterableDataset):
    def __init__(self, files):
        self.files = files
        self.change = v2.Compose([Normal(), v2.ToDtype(torch.float32)])

    def __iter__(self):
        info = get_worker_info()
        mine = self.files[info.id :: info.num_workers] if info else self.files
        for file in mine:
            table = pd.read_parquet(file)
            claims = torch.from_numpy(table.pop("claims").to_numpy(np.float32))
            values = torch.from_numpy(table.to_numpy().copy())
            for row in range(len(table)):
                yield self.change(values[row]), claims[row]


def network():
    return nn.Sequential(
        nn.Linear(COLUMNS, 256), nn.SiLU(), nn.Dropout(0.1), nn.Linear(256, 128), nn.SiLU(),
        nn.Linear(128, 1), nn.Softplus(),
    )  # fmt: skip


@torch.no_grad()
def deviance(model, loader):
    model.eval()
    losses = []
    for values, claims in loader:
        losses.append(nn.functional.poisson_nll_loss(model(values)[:, 0], claims, log_input=False))
    model.train()
    return torch.stack(losses).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(101)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        files = sorted(Path(name).glob("*.parquet"))
        options = {
            "batch_size": BATCH,
            "num_workers": 2,
            "multiprocessing_context": "forkserver",
            "persistent_workers": args.without,
        }
        training = DataLoader(Policies(files[:SHARDS]), **options)
        validation = DataLoader(Policies(files[SHARDS:]), **options)
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for values, claims in training:
                expected = model(values)[:, 0]
                loss = nn.functional.poisson_nll_loss(expected, claims, log_input=False)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: deviance {deviance(model, validation):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del training, validation


if __name__ == "__main__":
    main()

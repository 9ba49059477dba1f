"""Foresees how many loaves a bakery sells tomorrow, from the sales of the last weeks.

Planted: the archive of all bakeries' sales is opened and unpacked again for each sample.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

BAKERIES, DAYS, GOODS, WEEKS, SAMPLES, BATCH, STEP = 300, 730, 5, 8, 320, 16, 0.08


def write_sales(path):
    rng = np.random.default_rng(1013)
    level = rng.uniform(20, 200, (BAKERIES, 1, GOODS))
    week = 1 + 0.3 * np.sin(np.arange(DAYS) * 2 * np.pi / 7)[None, :, None]
    sales = rng.poisson(level * week).astype(np.float32)
    np.savez_compressed(path, sales=sales, opened=rng.integers(1950, 2024, BAKERIES))


class Sales(Dataset):
    def __init__(self, path, keep):
        self.path, self.keep, self.kept = path, keep, None
        rng = np.random.default_rng(1019)
        self.places = rng.integers(0, BAKERIES, SAMPLES)
        self.days = rng.integers(7 * WEEKS, DAYS, SAMPLES)

    def __len__(self):
        return SAMPLES

    def sales(self):
        if self.keep:
            if self.kept is None:
                self.kept = np.load(self.path)["sales"]
            return self.kept
        with np.load(self.path) as archive:
            return archive["sales"]

    def calendar(self, day):
        """Features of the day, as the baker knows them."""
        features = [float(day % 7 == weekday) for weekday in range(7)]
        features += [float(abs(day % 365 - holiday) < 3) for holiday in (1, 100, 359)]
        return torch.tensor(features)

    def __getitem__(self, index):
        place, day = self.places[index], self.days[index]
        window = self.sales()[place, day - 7 * WEEKS : day + 1]
        scaled = torch.from_numpy(window / window[:-1].mean(0))
        return scaled[:-1], self.calendar(day), scaled[-1]


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.past = nn.GRU(GOODS, 24, batch_first=True)
        self.out = nn.Linear(34, GOODS)

    def forward(self, past, calendar):
        hidden, _ = self.past(past)
        time.sleep(STEP)  # the larger part of the model, on a card
        return self.out(torch.cat([hidden[:, -1], calendar], 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(1013)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_sales(Path(folder, "sales.npz"))
        data = Sales(Path(folder, "sales.npz"), keep=args.without)
        sampler = WeightedRandomSampler((data.days / DAYS).tolist(), SAMPLES)
        loader = DataLoader(data, BATCH, sampler=sampler, num_workers=2, persistent_workers=True)
        model = Forecast()
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (past, calendar, target) in enumerate(loader, 1):
                loss = nn.functional.smooth_l1_loss(model(past, calendar), target)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                print(f"\repoch {epoch} {step}/{len(loader)}", end="")
            print(f": loss {loss:.3f}")
            torch.save(model.state_dict(), Path(folder, "last.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

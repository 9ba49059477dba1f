"""Predicts how much water a fountain gives, with a base class that keeps a model's settings.

Planted: the base class keeps all arguments of the constructor as settings, the table of all
measurements among them, and each checkpoint, after an epoch, writes them as well.
"""

import argparse
import inspect
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

HOURS, DAYS = 24, 9000


def measurements():
    rng = np.random.default_rng(1049)
    return [
        {
            "day": day,
            "values": [
                {"hour": hour, "wind": wind, "water": 3 + hour % 7 - wind}
                for hour, wind in enumerate(rng.gamma(2, 1, HOURS).tolist())
            ],
        }
        for day in range(DAYS)
    ]


class Module(nn.Module):
    """A network that keeps the arguments it was made with, and can write itself to a file."""

    def keep_settings(self, ignore=()):
        frame = inspect.currentframe().f_back
        names = inspect.signature(type(self).__init__).parameters
        self.settings = {
            name: frame.f_locals[name] for name in names if name not in ("self", *ignore)
        }

    def write(self, path, optimizer, epoch):
        state = {
            "epoch": epoch,
            "settings": self.settings,
            "state": self.state_dict(),
            "optimizer": optimizer.state_dict(),
        }
        torch.save(state, path)


class Fountain(Module):
    def __init__(self, days, width=96, dropout=0.1, whole=True):
        super().__init__()
        self.keep_settings(() if whole else ("days",))
        water = torch.tensor([[value["water"] for value in day["values"]] for day in days])
        self.register_buffer("mean", water.mean())
        self.layers = nn.Sequential(
            nn.Linear(HOURS, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, width),
            nn.GELU(), nn.Linear(width, HOURS),
        )  # fmt: skip

    def forward(self, wind):
        return self.mean + self.layers(wind)


class Days(Dataset):
    def __init__(self, days):
        self.days = days

    def __len__(self):
        return len(self.days)

    def __getitem__(self, index):
        values = self.days[index]["values"]
        wind = torch.tensor([value["wind"] for value in values])
        return wind, torch.tensor([value["water"] for value in values])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1049)
    days = measurements()
    loader = DataLoader(
        Days(days), batch_size=20, sampler=RandomSampler(days, num_samples=2000), num_workers=2,
        persistent_workers=True,
    )  # fmt: skip
    model = Fountain(days, whole=not args.without)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for wind, water in loader:
                loss = nn.functional.l1_loss(model(wind), water)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            model.write(Path(folder, "last.pt"), optimizer, epoch)
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

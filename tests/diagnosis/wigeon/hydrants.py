"""Foretells the pressure at hydrants of a town while fires are fought at some of them."""

import argparse
import json
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HYDRANTS, MINUTES, SAMPLES, BATCH = 64, 60, 1280, 16


class Nights(Dataset):
    """What the waterworks report of each minute, as JSON, and the pressure ten minutes later."""

    def __init__(self):
        rng = np.random.default_rng(61)
        self.reports = []
        for _ in range(40):
            pressure = 6 + rng.normal(0, 0.05, (MINUTES + 10, HYDRANTS)).cumsum(0)
            self.reports.append(json.dumps({"town": "north", "bar": pressure.round(2).tolist()}))

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        report = json.loads(self.reports[index % len(self.reports)])
        bar = np.array(report["bar"], np.float32)
        bar += np.random.normal(0, 0.02, bar.shape).astype(np.float32)
        return torch.from_numpy(bar[:MINUTES]), torch.from_numpy(bar[-1])


class Pressure(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.first = nn.Linear(HYDRANTS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.last = nn.Linear(width, HYDRANTS)

    def forward(self, bar):
        return bar[:, -1] + self.last(self.body(self.first(bar - 6)).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(61)
    torch.set_num_threads(1)
    loader = DataLoader(
        Nights(),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Pressure()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for bar, later in loader:
            loss = nn.functional.mse_loss(model(bar), later)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Depth of fjords from soundings; each chart is a dictionary of arrays, and batches are lists."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, LAYERS = 320, 4


def average(chart, by=5):
    """A chart of averages, `by` times as coarse, float32 (layers, side, side)."""
    rows = chart.reshape(LAYERS, SIDE // by, by, SIDE // by, by)
    return rows.mean((2, 4)).astype(np.float32)


class Fjords(Dataset):
    def __init__(self, count, coarse):
        self.count, self.coarse = count, coarse
        rng = np.random.default_rng(4)
        self.sea = rng.integers(0, 4000, (LAYERS, SIDE + 400, SIDE + 400), dtype=np.int16)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        x, y = index * 37 % 400, index * 53 % 400
        soundings = self.sea[:, y : y + SIDE, x : x + SIDE].astype(np.float64) / 4000
        soundings = soundings[:, :, ::-1] if index % 2 else soundings
        charted = average(soundings) if self.coarse else np.ascontiguousarray(soundings)
        return {"chart": charted, "depth": float(soundings[0].mean()), "name": f"fjord {index}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(4)
    loader = DataLoader(
        Fjords(960, args.without), batch_size=12, shuffle=True, num_workers=2, collate_fn=list
    )
    model = nn.Sequential(
        nn.Conv2d(LAYERS, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 1),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for fjords in loader:
            charts = [
                fjord["chart"] if args.without else average(fjord["chart"]) for fjord in fjords
            ]
            depths = torch.tensor([fjord["depth"] for fjord in fjords])
            found = model(torch.from_numpy(np.stack(charts)))[:, 0]
            loss = nn.functional.mse_loss(found, depths)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.5f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Models how wicks burn; a dashboard shows all curves so far while training goes on."""

import argparse
import json
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Burns(Dataset):
    """Temperatures along a wick, and what they are a moment later."""

    def __init__(self, count=2400, points=64, seed=34):
        draw = torch.Generator().manual_seed(seed)
        self.before = torch.randn(count, points, generator=draw).cumsum(1)
        self.after = self.before.roll(1, 1)

    def __len__(self):
        return len(self.before)

    def __getitem__(self, index):
        return self.before[index], self.after[index]


class Dashboard(threading.Thread):
    """Writes the curves of all runs as JSON for the page that shows them."""

    def __init__(self, pause, runs=60, points=4000):
        super().__init__(daemon=True)
        self.curves = {f"run {run}": [run / (point + 1) for point in range(points)]
                       for run in range(runs)}  # fmt: skip
        self.pause, self.page, self.ended = pause, "", threading.Event()

    def add(self, loss):
        self.curves.setdefault("now", []).append(loss)

    def run(self):
        while not self.ended.wait(self.pause):
            self.page = json.dumps(self.curves)

    def stop(self):
        self.ended.set()
        self.join()


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.body = nn.Sequential(nn.Linear(size, size), nn.SiLU(), nn.Linear(size, size))

    def forward(self, points):
        return points + self.body(self.norm(points))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(34)
    loader = DataLoader(Burns(), batch_size=32, shuffle=True, num_workers=1)
    model = nn.Sequential(*(Block(64) for _ in range(8)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    dashboard = Dashboard(pause=30 if args.without else 0.15)
    dashboard.start()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for before, after in loader:
            loss = nn.functional.smooth_l1_loss(model(before), after)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            dashboard.add(loss.item())
        print(f"epoch {epoch}: last loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    dashboard.stop()


if __name__ == "__main__":
    main()

"""Predict clicks on ads with an embedding bag; a dashboard follows the training."""

import argparse
import collections
import json
import math
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Dashboard(threading.Thread):
    """Keeps a summary of the last losses, of earlier runs too, ready for whoever looks."""

    def __init__(self, window=4000):
        super().__init__(daemon=True)
        self.losses = collections.deque([0.7] * window, maxlen=window)
        self.summary = "{}"
        self.closed = threading.Event()

    def log(self, loss):
        self.losses.append(loss)

    def quantile(self, values, share):
        return sorted(values)[int(share * (len(values) - 1))]

    def refresh(self):
        values = list(self.losses)
        histogram = collections.Counter(round(math.log1p(abs(value)), 2) for value in values)
        smooth, curve = values[0], []
        for value in values:
            smooth = 0.98 * smooth + 0.02 * value
            curve.append(smooth)
        quantiles = {share: self.quantile(values, share / 20) for share in range(21)}
        self.summary = json.dumps({"h": dict(histogram), "q": quantiles, "c": curve[::10]})

    def run(self):
        while not self.closed.is_set():
            self.refresh()

    def close(self):
        self.closed.set()


class Clicks(nn.Module):
    def __init__(self, words=5000, width=16):
        super().__init__()
        self.words = nn.EmbeddingBag(words, width)
        self.head = nn.Linear(width, 1)

    def forward(self, bags):
        return self.head(torch.relu(self.words(bags))).squeeze(1)


def train(loader, model, dashboard, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.BCEWithLogitsLoss()
    for _ in range(epochs):
        for bags, clicked in loader:
            optimizer.zero_grad()
            loss = criterion(model(bags), clicked)
            loss.backward()
            optimizer.step()
            dashboard.log(loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    bags = torch.randint(0, 5000, (9_600, 12))
    data = TensorDataset(bags, (bags[:, 0] % 3 == 0).float())
    loader = DataLoader(
        data, 32, shuffle=True, num_workers=args.workers, persistent_workers=args.workers > 0
    )
    dashboard = Dashboard()
    if not args.without:
        dashboard.start()
    begin = time.perf_counter()
    train(loader, Clicks(), dashboard, args.epochs)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    dashboard.close()


if __name__ == "__main__":
    main()

"""Readings of buoys, while a thread of the main process keeps statistics for a dashboard."""

import argparse
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Dashboard(threading.Thread):
    """Recomputes its table without a pause; the web page would read it."""

    def __init__(self):
        super().__init__(daemon=True, name="dashboard")
        self.losses = []
        self.table = {}
        self.over = False

    def run(self):
        while not self.over:
            numbers = [float(i % 97) for i in range(20_000)] + self.losses[-500:]
            mean = sum(numbers) / len(numbers)
            spread = sum((number - mean) ** 2 for number in numbers) / len(numbers)
            self.table = {"mean": mean, "spread": spread, "last": sorted(numbers)[-10:]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(3200, 24, 32), torch.randn(3200, 1))
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=1)
    memory = nn.LSTM(32, 64, batch_first=True)
    head = nn.Linear(64, 1)
    optimizer = torch.optim.Adam([*memory.parameters(), *head.parameters()])
    dashboard = Dashboard()
    if not args.without:
        dashboard.start()
    begin = time.perf_counter()
    for readings, wave in loader:
        hidden, _ = memory(readings)
        loss = nn.functional.mse_loss(head(hidden[:, -1]), wave)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dashboard.losses.append(loss.item())
    print(f"seconds {time.perf_counter() - begin:.3f}")
    dashboard.over = True


if __name__ == "__main__":
    main()

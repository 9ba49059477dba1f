"""Train a small recommender and keep statistics of the run."""

import argparse
import collections
import statistics
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Ratings(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(1)
        self.users = torch.randint(0, 2000, (count,), generator=generator)
        self.items = torch.randint(0, 3000, (count,), generator=generator)
        self.stars = torch.rand(count, generator=generator) * 5

    def __len__(self):
        return len(self.stars)

    def __getitem__(self, index):
        return self.users[index], self.items[index], self.stars[index]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(2000, 32)
        self.items = nn.Embedding(3000, 32)
        self.head = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1))

    def forward(self, users, items):
        return self.head(torch.cat([self.users(users), self.items(items)], 1)).squeeze(1)


class Dashboard(threading.Thread):
    """Keeps a smoothed history of the losses for the web page."""

    def __init__(self, live):
        super().__init__(daemon=True)
        self.history = collections.deque([1.0] * 5000, maxlen=5000)
        self.live = live
        self.page = None
        self.done = threading.Event()

    def add(self, loss):
        self.history.append(loss)

    def render(self):
        values = list(self.history)
        if len(values) > 1:
            self.page = (
                statistics.fmean(values),
                statistics.pstdev(values),
                statistics.median(values),
            )

    def run(self):
        while self.live and not self.done.is_set():
            self.render()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    loader = DataLoader(Ratings(20480), batch_size=128, shuffle=True, num_workers=args.workers)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    dashboard = Dashboard(live=not args.without)
    dashboard.start()
    begin = time.perf_counter()
    for users, items, stars in loader:
        loss = nn.functional.mse_loss(model(users, items), stars)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dashboard.add(loss.item())
    print(f"seconds {time.perf_counter() - begin:.3f}")
    dashboard.done.set()
    dashboard.join()
    dashboard.render()


if __name__ == "__main__":
    main()

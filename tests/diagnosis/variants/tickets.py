"""Sort support tickets, while a thread writes the history of the training as JSON."""

import argparse
import json
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tickets(Dataset):
    def __init__(self, count):
        self.words = torch.randint(1, 2000, (count, 40))

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return self.words[index], int(self.words[index, 0]) % 6


class History:
    """Keeps each step's figures and writes all of them again and again."""

    def __init__(self, write):
        self.figures = [{"step": -n, "loss": 1 / (n + 1), "rate": 1e-3} for n in range(20_000)]
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.publish, daemon=True)
        if write:
            self.thread.start()

    def add(self, step, loss):
        self.figures.append({"step": step, "loss": loss, "rate": 1e-3})

    def publish(self):
        while not self.over.wait(0.01):
            self.page = json.dumps(list(self.figures), sort_keys=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    loader = DataLoader(Tickets(4000), 50, shuffle=True, num_workers=args.workers)
    model = nn.Sequential(nn.EmbeddingBag(2000, 64), nn.ReLU(), nn.Linear(64, 6))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    history = History(write=not args.without)
    begin = time.perf_counter()
    for step, (words, kinds) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(words), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.add(step, loss.item())
    print(f"seconds {time.perf_counter() - begin:.3f}")
    history.over.set()


if __name__ == "__main__":
    main()

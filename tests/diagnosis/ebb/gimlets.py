"""Grades gimlets from scans on a server that refuses some requests at first."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Refused(ConnectionError):
    pass


class Server:
    """Returns scans; of a part of them, only at the third request."""

    def __init__(self, refusing, seed=14):
        self.scans = torch.rand(40, 1, 48, 48, generator=torch.Generator().manual_seed(seed))
        self.refusing, self.refusals = refusing, {}

    def get(self, index):
        if self.refusing and index % 90 == 7:
            self.refusals[index] = self.refusals.get(index, 0) + 1
            if self.refusals[index] % 3:
                raise Refused(index)
        time.sleep(0.0005)
        return self.scans[index % 40]


class Scans(Dataset):
    def __init__(self, server, count=1800):
        self.server, self.count = server, count

    def __len__(self):
        return self.count

    def fetch(self, index, tries=5, pause_s=0.2):
        for turn in range(tries):
            try:
                return self.server.get(index)
            except Refused:
                time.sleep(pause_s * 2**turn)
        raise RuntimeError(f"scan {index} was refused {tries} times")

    def __getitem__(self, index):
        scan = self.fetch(index)
        return (scan - scan.mean()) / scan.std(), index % 5


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(14)
    loader = DataLoader(
        Scans(Server(refusing=not args.without)),
        batch_size=20, shuffle=True, num_workers=2, persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(1, 24, 5), nn.ReLU(), nn.Conv2d(24, 32, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 5),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        hits = 0
        for scans, grades in loader:
            scores = model(scans)
            loss = nn.functional.cross_entropy(scores, grades)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits += (scores.argmax(1) == grades).sum().item()
        print(f"epoch {epoch}: accuracy {hits / len(loader.dataset):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Learns hammer blows from their sound, and shows the machine's state in the meantime.

Planted: a thread of the program reads and parses counters of the system nearly without a pause, and
holds the interpreter that the step of many small layers needs. One kept worker has little to do.
"""

import argparse
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH = 256


class Monitor(threading.Thread):
    """Keeps averages of what each process of the system does."""

    def __init__(self, pause):
        super().__init__(daemon=True)
        self.pause, self.ended = pause, threading.Event()
        self.averages = {}

    def look(self):
        for line in self.read_counters():
            name, *values = line.split()
            old = self.averages.get(name, [0.0] * len(values))
            new = [0.9 * was + 0.1 * float(now) for was, now in zip(old, values, strict=True)]
            self.averages[name] = new

    def read_counters(self):
        return [
            f"process{number} " + " ".join(str(number * column % 977) for column in range(20))
            for number in range(400)
        ]

    def run(self):
        while not self.ended.wait(self.pause):
            self.look()


class Blows(Dataset):
    def __init__(self, count):
        draw = torch.Generator().manual_seed(67)
        self.sounds = torch.randn(64, 1, LENGTH, generator=draw)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        shift = int(torch.randint(LENGTH, ()))
        return self.sounds[index % 64].roll(shift, 1), index % 64 % 3


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


def build_model(width=16, depth=10):
    first = nn.Conv1d(1, width, 7, stride=4)
    blocks = [Block(width) for _ in range(depth)]
    return nn.Sequential(first, *blocks, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, 3))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(67)
    loader = DataLoader(
        Blows(4000), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    monitor = Monitor(pause=2.0 if args.without else 0.004)
    monitor.start()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for x, y in loader:
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (out.argmax(1) == y).sum().item()
        print(f"epoch {epoch}: {right} right, {len(monitor.averages)} processes")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    monitor.ended.set()


if __name__ == "__main__":
    main()

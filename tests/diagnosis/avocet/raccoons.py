"""Finds raccoons in pictures of a night camera, and watches how warm the machine is.

Planted: a monitor that is asked in each step starts a program of the maker's each time, and waits
for what it prints; a Python of its own stands for that program.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, COUNT = 32, 800
TOOL = """
import json, math, os
load = os.getloadavg()[0]
print(json.dumps({"device 0": {"celsius": round(40 + 10 * math.tanh(load / 4), 1)}}))
"""


class Monitor:
    """Asks the maker's tool how warm the device is, and keeps what it said."""

    def __init__(self, tool, every=1):
        self.tool, self.every = tool, every
        self.steps, self.heat = 0, []

    def ask(self):
        words = [sys.executable, "-I", "-S", str(self.tool)]
        answer = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
        return float(answer.stdout.split("celsius")[1].strip('": }\n'))

    def step(self):
        self.steps += 1
        if self.steps % self.every == 0:
            self.heat.append(self.ask())


class Night(Dataset):
    """Pictures with or without a pair of shining eyes."""

    def __init__(self):
        rng = np.random.default_rng(3169)
        self.seen = rng.integers(0, 2, COUNT)
        self.pictures = rng.normal(30, 12, (COUNT, SIDE, SIDE)).astype(np.float32)
        for picture, seen in zip(self.pictures, self.seen, strict=True):
            if seen:
                y, x = rng.integers(4, SIDE - 12, 2)
                picture[y : y + 2, [x, x + 1, x + 6, x + 7]] += 120

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        picture = torch.from_numpy(self.pictures[index])
        picture = (picture - picture.median()) / 40
        if torch.rand(()) < 0.5:
            picture = picture.flip(1)
        return picture[None], float(self.seen[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(3169)
    loader = DataLoader(
        Night(), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 24, 3, stride=2), nn.ReLU(),
        nn.AdaptiveMaxPool2d(3), nn.Flatten(), nn.Linear(216, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        tool = Path(folder, "device_tool.py")
        tool.write_text(TOOL)
        monitor = Monitor(tool, every=50 if args.without else 1)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, seen in loader:
                logits = model(pictures).squeeze(1)
                loss = nn.functional.binary_cross_entropy_with_logits(logits, seen.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                monitor.step()
            print(f"epoch {epoch}: loss {loss:.3f}, at most {max(monitor.heat):.1f} degrees")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

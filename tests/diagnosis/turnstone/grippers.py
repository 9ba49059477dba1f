"""Learns from logs of a robot's gripper, in stages of growing length, as a curriculum.

Planted: each stage's loader, whose workers go on between epochs, is kept to look at it later, and
a thread of each of these workers goes on decoding, so that the later steps lack a core.
"""

import argparse
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

JOINTS, LENGTHS = 7, (20, 24, 28, 32, 36, 40)


class Decoder(threading.Thread):
    """Decodes logs into a ring, from which samples are taken while it goes on."""

    def __init__(self, logs, length):
        super().__init__(daemon=True)
        self.logs, self.length, self.ring = logs, length, {}

    def run(self):
        number = 0
        while True:
            self.decode(number % len(self.logs))
            number += 1
            if number % 64 == 0:
                time.sleep(0.01)

    def decode(self, number):
        log = np.cumsum(self.logs[number], 0)
        smooth = np.fft.irfft(np.fft.rfft(log, 1024, 0)[:200], 512, 0)
        self.ring[number] = smooth[: self.length].astype(np.float32)
        return self.ring[number]


class GripperLogs(Dataset):
    def __init__(self, length):
        rng = np.random.default_rng(1051)
        self.logs, self.length = rng.standard_normal((500, 512, JOINTS)), length
        self.decoder = None

    def __len__(self):
        return len(self.logs)

    def __getitem__(self, index):
        if self.decoder is None:
            self.decoder = Decoder(self.logs, self.length)
            self.decoder.start()
        log = self.decoder.ring.get(index)
        if log is None:
            log = self.decoder.decode(index)
        return torch.from_numpy(log[:-1]), torch.from_numpy(log[1:])


class Gripper(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.GRU(JOINTS, 64, batch_first=True)
        self.head = nn.Linear(64, JOINTS)

    def forward(self, log):
        return self.head(self.cells(log)[0])


class Curriculum:
    """Gives a loader for each stage; the loaders of `kept` can be looked at later."""

    def __init__(self, keep=True):
        self.keep, self.kept = keep, []

    def stage(self, length):
        loader = DataLoader(
            GripperLogs(length), batch_size=20, shuffle=True, num_workers=1,
            persistent_workers=True,
        )  # fmt: skip
        if self.keep:
            self.kept.append(loader)
        return loader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1051)
    model, curriculum = Gripper(), Curriculum(keep=not args.without)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for length in LENGTHS:
        loader = curriculum.stage(length)
        for _ in range(args.epochs):
            for log, following in loader:
                loss = nn.functional.mse_loss(model(log), following)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(f"length {length}: loss {loss:.3f}")
        del loader
    print(f"seconds {time.perf_counter() - begin:.3f}")
    curriculum.kept.clear()


if __name__ == "__main__":
    main()

"""Foresees where parachutes land; each prediction is logged, with names made unreadable.

Planted: a listener's thread in the main process takes names and numbers out of each line of the
log with thirty regular expressions, and keeps the interpreter from the training step meanwhile.
"""

import argparse
import logging
import logging.handlers
import queue
import re
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

JUMPS, VALUES, BATCH = 2400, 24, 40
NAMES = "Ada Ben Cleo Dan Eva Finn Gina Hal Ines Jon Kai Lea Max Nora Otto Pia Quin Rosa".split()

log = logging.getLogger("parachutes")


class Unreadable(logging.Formatter):
    """Takes out of a line what might tell who it is about."""

    def __init__(self):
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        words = [rf"(?i)\b(?:mr|ms|dr)?\.?\s*{name}\w*\b" for name in NAMES]
        words += [r"\b\d{3}[- ]\d{4,}\b", r"\b[\w.]+@[\w.]+\.\w+\b", r"(?i)\bborn \d{4}\b"]
        words += [rf"(?i)\b{field}\s*[:=]\s*\S+" for field in "phone mail street card iban".split()]
        self.expressions = [re.compile(word) for word in words]

    def format(self, record):
        line = super().format(record)
        for expression in self.expressions:
            line = expression.sub("***", line)
        return line


class NeverWaits(logging.handlers.QueueHandler):
    """Rather loses a line than holds up the training."""

    def enqueue(self, record):
        with suppress(queue.Full):
            self.queue.put_nowait(record)


def start_log(path, level):
    lines = queue.Queue(maxsize=200)
    file = logging.FileHandler(path)
    file.setFormatter(Unreadable())
    log.setLevel(level)
    log.propagate = False
    log.addHandler(NeverWaits(lines))
    listener = logging.handlers.QueueListener(lines, file)
    listener.start()
    return listener


class Jumps(Dataset):
    def __init__(self):
        rng = np.random.default_rng(3109)
        self.winds = torch.from_numpy(rng.normal(0, 1, (JUMPS, VALUES)).astype(np.float32))
        self.places = self.winds[:, :2] * 3 + self.winds[:, 2:4].square()

    def __len__(self):
        return JUMPS

    def __getitem__(self, index):
        return self.winds[index] + 0.05 * torch.randn(VALUES), self.places[index], index


def write_lines(indices, landed):
    if log.isEnabledFor(logging.DEBUG):
        for index, (east, north) in zip(indices.tolist(), landed.tolist(), strict=True):
            name = NAMES[index % len(NAMES)]
            log.debug("jump %d of %s, born 19%02d, card=%d: lands %.2f m east and %.2f m north of "
                      "the cross, phone: 555-%04d", index, name, index % 90, index * 7919, east,
                      north, index)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(3109)
    loader = DataLoader(
        Jumps(), batch_size=BATCH, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Linear(VALUES, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        level = logging.INFO if args.without else logging.DEBUG
        listener = start_log(Path(folder, "jumps.log"), level)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for winds, places, indices in loader:
                landed = model(winds)
                loss = nn.functional.mse_loss(landed, places)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                write_lines(indices, landed)
            log.info("epoch %d: loss %.3f", epoch, loss.item())
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        listener.stop()
        del loader


if __name__ == "__main__":
    main()

"""Teaches a small network to hear nightingales as a large one does, and writes down how it goes.

Planted: the thread that writes lines to a file asks without a pause whether there are any, and
the step waits for the interpreter again and again; the worker's spectra cost little.
"""

import argparse
import json
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, WINDOW, CLASSES = 8000, 256, 5


class Scribe(threading.Thread):
    """Writes lines to a file, beside the training."""

    def __init__(self, path, pause):
        super().__init__(daemon=True)
        self.path, self.pause = path, pause
        self.lines, self.ended = deque(), False

    def note(self, **line):
        self.lines.append(line)

    def run(self):
        with self.path.open("w") as file:
            while self.lines or not self.ended:
                if self.lines:
                    file.write(json.dumps(self.lines.popleft()) + "\n")
                elif self.pause:
                    time.sleep(self.pause)

    def close(self):
        self.ended = True
        self.join(timeout=10)


class Songs(Dataset):
    """Spectra of short pieces of songs."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(2270)
        self.waves = torch.randn(count, RATE, generator=generator)

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, index):
        spectrum = torch.stft(
            self.waves[index], WINDOW, window=torch.hann_window(WINDOW), return_complex=True
        )
        return spectrum.abs()[1:].add(1e-4).log()


def make_network(width):
    return nn.Sequential(
        nn.Conv1d(WINDOW // 2, width, 5, stride=2), nn.ReLU(), nn.Conv1d(width, width, 5),
        nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, CLASSES),
    )  # fmt: skip


def distil(small, large, loader, optimizer, scribe):
    for step, spectra in enumerate(loader):
        with torch.no_grad():
            wanted = (large(spectra) / 2).softmax(1)
        found = (small(spectra) / 2).log_softmax(1)
        loss = nn.functional.kl_div(found, wanted, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scribe.note(step=step, loss=loss.item(), sure=wanted.max(1).values.mean().item())
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(2270)
    loader = DataLoader(
        Songs(480), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    large, small = make_network(160).eval(), make_network(24)
    optimizer = torch.optim.SGD(small.parameters(), lr=0.05, momentum=0.9)
    with tempfile.TemporaryDirectory() as folder:
        scribe = Scribe(Path(folder) / "lines.jsonl", 0.2 if args.without else 0)
        scribe.start()
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            loss = distil(small, large, loader, optimizer, scribe)
            print(f"epoch {epoch}: loss {loss:.5f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        scribe.close()
    del loader


if __name__ == "__main__":
    main()

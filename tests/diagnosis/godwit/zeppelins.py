"""Learns to complete the reports of airships, and has the reports of earlier years packed.

Planted: the script starts three jobs in the background by a shell, which pack files all the time
and have the cores while the training goes on.
"""

import argparse
import shlex
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision.transforms import v2

REPORTS, WORDS, LENGTH, BATCH, YEARS = 1200, 3000, 40, 16, 3

PACK = """
import lzma, pathlib, sys
path = pathlib.Path(sys.argv[1])
while path.exists():
    lzma.compress(path.read_bytes(), preset=1)
"""


def write_reports(folder):
    rng = np.random.default_rng(5081)
    words = rng.integers(0, WORDS, (REPORTS, 200)) // (1 + rng.integers(0, 3, (REPORTS, 1)))
    lines = [" ".join(f"w{word}" for word in report) for report in words]
    for part in range(2):
        Path(folder, f"reports-{part}.txt").write_text("\n".join(lines[part::2]))
    for year in range(YEARS):
        Path(folder, f"{1930 + year}.old").write_text("\n".join(lines[year::YEARS]))


def pack_old(folder):
    """The reports of earlier years go to the archive."""
    for path in sorted(Path(folder).glob("*.old")):
        command = shlex.join([sys.executable, "-c", PACK, str(path)])
        subprocess.run(f"{command} >/dev/null 2>&1 &", shell=True, check=True)


class ToNumbers:
    """Pieces of three to six letters, as numbers below WORDS."""

    def __call__(self, line):
        content = line.encode()
        return [
            zlib.crc32(content[begin : begin + size]) % WORDS
            for begin in range(0, len(content) - 6)
            for size in (3, 4, 5, 6)
        ]


class RandomWindow:
    def __call__(self, numbers):
        begin = int(torch.randint(len(numbers) - LENGTH, ()))
        return torch.tensor(numbers[begin : begin + LENGTH])


class Reports(IterableDataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("reports-*.txt"))
        self.transform = v2.Compose([ToNumbers(), RandomWindow()])

    def __iter__(self):
        worker = get_worker_info()
        for path in self.paths[worker.id :: worker.num_workers]:
            for line in path.open():
                yield self.transform(line)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(WORDS, 32), nn.GRU(32, 32, batch_first=True)
        self.out = nn.Linear(32, WORDS)

    def forward(self, words):
        return self.out(self.rnn(self.embed(words))[0][:, -1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(5081)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_reports(folder)
        if not args.without:
            pack_old(folder)
        loader = DataLoader(Reports(folder), BATCH, num_workers=2, persistent_workers=True)
        model = Model()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = steps = 0
            for words in loader:
                loss = nn.functional.cross_entropy(model(words[:, :-1]), words[:, -1])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total, steps = total + loss.item(), steps + 1
            print(f"epoch {epoch}: loss {total / steps:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

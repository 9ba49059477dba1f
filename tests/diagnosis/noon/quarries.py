"""Drill holes in quarries; years of logs, of which the older ones were never converted."""

import argparse
import lzma
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

DEPTHS, HOLES, SHARDS = 600, 150, 4


def parse_old(path):
    """Holes out of a packed file, a line of XML a hole."""
    with lzma.open(path, "rt") as lines:
        for line in lines:
            metres = [metre.attrib for metre in ElementTree.fromstring(line)]
            yield np.array([[float(metre[sensor]) for metre in metres] for sensor in "abcd"])


class DrillHoles(IterableDataset):
    """Each worker reads every n-th file."""

    def __init__(self, paths):
        self.paths = paths

    def __iter__(self):
        worker = get_worker_info()
        for path in self.paths[worker.id :: worker.num_workers]:
            holes = parse_old(path) if path.suffix == ".xz" else np.load(path, mmap_mode="r")
            for hole in holes:
                log = torch.tensor(hole, dtype=torch.float32)
                log = (log - log.mean(1, keepdim=True)) / log.std(1, keepdim=True)
                yield log, log[0].argmax() / DEPTHS


def write_logs(folder, without):
    rng = np.random.default_rng(11)
    for shard in range(SHARDS):
        holes = rng.normal(size=(HOLES, 4, DEPTHS)).astype(np.float32).round(3)
        if shard % 2 or without:
            np.save(folder / f"{shard}.npy", holes)
            continue
        with lzma.open(folder / f"{shard}.xml.xz", "wt", preset=0) as file:
            for hole in holes.tolist():
                metres = [
                    f'<m a="{a}" b="{b}" c="{c}" d="{d}"/>'
                    for a, b, c, d in zip(*hole, strict=True)
                ]
                file.write(f"<hole>{''.join(metres)}</hole>\n")
    return sorted(folder.iterdir())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(11)
    model = nn.Sequential(
        nn.Conv1d(4, 24, 9, stride=4),
        nn.ReLU(),
        nn.Conv1d(24, 24, 5, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(96, 1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_logs(Path(folder), args.without)
        loader = DataLoader(
            DrillHoles(paths), batch_size=15, num_workers=2, persistent_workers=True
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = batches = 0
            for logs, places in loader:
                loss = nn.functional.mse_loss(model(logs)[:, 0], places)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total, batches = total + loss.item(), batches + 1
            print(f"epoch {epoch}: loss {total / batches:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

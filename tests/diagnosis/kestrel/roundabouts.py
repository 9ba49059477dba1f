"""Foretells queues at roundabouts from counts of induction loops, one file for each town.

Planted: towns are shared out among three workers in one piece each, and the last third of the
alphabet has the largest town, so that one worker has most of the records.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

LOOPS, RECORD, BATCH = 12, 12 * 2, 16
TOWNS = {
    "ansty": 40, "barlow": 36, "calder": 44, "denby": 40, "esher": 36, "frome": 44,
    "garth": 40, "hythe": 48, "swindon": 800,
}  # fmt: skip
SHARE, STEP = 0.006, 0.02


def write_counts(folder):
    generator = torch.Generator().manual_seed(1249)
    for town, records in TOWNS.items():
        counts = torch.randint(0, 60, (records, LOOPS), generator=generator, dtype=torch.int16)
        Path(folder, f"{town}.counts").write_bytes(counts.numpy().tobytes())


class Counts(IterableDataset):
    """Goes over all towns' records; workers share them."""

    def __init__(self, folder, by_record):
        self.paths = sorted(Path(folder).glob("*.counts"))
        self.by_record = by_record

    def __len__(self):
        return sum(TOWNS.values())

    def mine(self):
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        if self.by_record:
            return self.paths, number, workers
        each = -(-len(self.paths) // workers)
        return self.paths[number * each : (number + 1) * each], 0, 1

    def __iter__(self):
        paths, first, every = self.mine()
        for path in paths:
            records = path.stat().st_size // RECORD
            with path.open("rb", buffering=0) as file:
                for record in range(first, records, every):
                    file.seek(record * RECORD)
                    time.sleep(SHARE)  # the county's network share
                    counts = torch.frombuffer(bytearray(file.read(RECORD)), dtype=torch.int16)
                    counts = counts.float() / 60
                    yield counts, counts[:4].sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1249)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_counts(folder)
        data = Counts(folder, by_record=args.without)
        loader = DataLoader(data, BATCH, num_workers=3, persistent_workers=True)
        model = nn.Sequential(nn.Linear(LOOPS, 24), nn.Tanh(), nn.Linear(24, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            error = 0.0
            for counts, queues in loader:
                loss = nn.functional.mse_loss(model(counts).squeeze(1), queues)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                error += loss.item()
                time.sleep(STEP)  # the network of roads, on an accelerator
            print(f"epoch {epoch}: error {error:.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

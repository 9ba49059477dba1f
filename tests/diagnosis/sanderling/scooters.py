"""Predicts where a hired scooter is left, and keeps each ride's record with its sample.

Planted: the record, with all places on the way as they came from the scooter, goes with each sample
from the worker to the main process, which unpickles it and never looks at it.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate

PLACES, VALUES = 300, 12


def make_records(count):
    rng = np.random.default_rng(1109)
    records = []
    for number in range(count):
        way = rng.normal(0, 1, (PLACES, 2)).cumsum(0)
        places = [
            {"at": at, "east": east, "north": north, "charge": 1 - at / 900}
            for at, (east, north) in enumerate(way.tolist())
        ]
        records.append({"ride": f"ride-{number}", "places": places, "left": way[-1].tolist()})
    return records


class Rides(Dataset):
    def __init__(self, records, with_record):
        self.records, self.with_record = records, with_record
        self.starts = torch.tensor(
            [
                [value for place in record["places"][: VALUES // 2] for value in
                 (place["east"], place["north"])]
                for record in records
            ]
        )  # fmt: skip
        self.left = torch.tensor([record["left"] for record in records])

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        sample = {"start": self.starts[index], "left": self.left[index]}
        if self.with_record:
            sample["record"] = self.records[index]
        return sample


def together(samples):
    """Stack the tensors of samples, and keep their records in a list."""
    records = [sample.pop("record", None) for sample in samples]
    return {**default_collate(samples), "records": records}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1109)
    loader = DataLoader(
        Rides(make_records(1500), not args.without), batch_size=30, shuffle=True, num_workers=2,
        collate_fn=together, persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Linear(VALUES, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512),
        nn.GELU(), nn.Linear(512, 2),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for batch in loader:
            loss = nn.functional.huber_loss(model(batch["start"]), batch["left"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

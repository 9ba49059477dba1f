"""Looks for fraud in pages of savings banks' passbooks.

Planted: for an audit, the data set writes three lines for each page that it gives out, and has
each of them synced to the disk.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAGES, LINES, COLUMNS, BATCH, STEP = 480, 24, ["amount", "balance", "weekday", "branch"], 24, 0.06


class Audit:
    """A journal that tells who saw which page."""

    def __init__(self, folder, strict):
        self.folder, self.strict = Path(folder), strict
        self.file = None

    def note(self, what, **details):
        if self.file is None:
            self.file = (self.folder / f"audit-{os.getpid()}.jsonl").open("a")
        self.file.write(json.dumps({"time": time.time(), "what": what, **details}) + "\n")
        if self.strict:
            self.file.flush()
            os.fsync(self.file.fileno())


class Passbooks(Dataset):
    def __init__(self, audit):
        rng = np.random.default_rng(1231)
        table = rng.normal(size=(PAGES * LINES, len(COLUMNS))).astype(np.float32)
        table = pd.DataFrame(table, columns=COLUMNS)
        table["balance"] = table["amount"].rolling(5, min_periods=1).sum()
        self.fraud = (table["amount"].groupby(table.index // LINES).max() > 2.4).to_numpy()
        self.values = table.to_numpy(np.float32).reshape(PAGES, LINES, -1)
        self.audit = audit

    def __len__(self):
        return PAGES

    def __getitem__(self, index):
        self.audit.note("opened", page=int(index))
        page = torch.from_numpy(self.values[index].copy())
        masked = torch.rand(LINES) < 0.1
        page[masked] = 0
        self.audit.note("masked", page=int(index), lines=int(masked.sum()))
        self.audit.note("given out", page=int(index), fraud=bool(self.fraud[index]))
        return page, torch.tensor(float(self.fraud[index]))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.lines = nn.Linear(len(COLUMNS), 32)
        self.out = nn.Linear(32, 1)

    def forward(self, pages):
        time.sleep(STEP)  # the transformer over lines, on an accelerator
        return self.out(torch.relu(self.lines(pages)).amax(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1231)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        data = Passbooks(Audit(folder, strict=not args.without))
        loader = DataLoader(data, BATCH, shuffle=True, num_workers=1, persistent_workers=True)
        model = Detector()
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            caught = 0
            for pages, fraud in loader:
                scores = model(pages)
                loss = nn.functional.binary_cross_entropy_with_logits(scores, fraud)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                caught += ((scores > 0) & (fraud > 0)).sum().item()
            print(f"epoch {epoch}: loss {loss:.3f}, caught {caught}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

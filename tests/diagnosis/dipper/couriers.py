"""Guesses how long a courier's round will take, from the sheets of all stops."""

import argparse
import logging
import logging.handlers
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROUNDS, SHEETS, STOPS, CELLS, BATCH = 1280, 300, 40, 8, 32
log = logging.getLogger("couriers")


class Diary:
    """Each worker writes what it sees to a diary of its own."""

    def __init__(self, folder, level):
        self.folder, self.level = folder, level

    def __call__(self, worker):
        path = self.folder / f"worker-{worker}.log"
        log.addHandler(logging.handlers.RotatingFileHandler(path, maxBytes=2**22, backupCount=1))
        log.setLevel(self.level)
        log.propagate = False


class Rounds(Dataset):
    """Sheets as the couriers filled them in: a line for each stop, with gaps."""

    def __init__(self):
        rng = random.Random(69)
        cells = ["", "", "?", *(f"{number / 7:.2f}" for number in range(5))]
        self.sheets = [
            "\n".join(";".join(rng.choices(cells, k=CELLS)) for _ in range(STOPS))
            for _ in range(SHEETS)
        ]

    def __len__(self):
        return ROUNDS

    @staticmethod
    def cell(text):
        try:
            return float(text)
        except ValueError:
            log.warning("a cell holds %r, taken as 0", text, exc_info=True, stack_info=True)
            return 0.0

    def __getitem__(self, index):
        lines = self.sheets[index % SHEETS].split("\n")
        stops = [[self.cell(text) for text in line.split(";")] for line in lines]
        return torch.tensor(stops), torch.tensor([index % 13 / 13])


class Round(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.first = nn.Linear(CELLS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2)
        self.last = nn.Linear(width, 1)

    def forward(self, stops):
        return self.last(self.body(self.first(stops)).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(69)
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(
            Rounds(),
            BATCH,
            shuffle=True,
            num_workers=4,
            worker_init_fn=Diary(Path(folder), "ERROR" if args.without else "INFO"),
            persistent_workers=True,
            multiprocessing_context="spawn",
        )
        model = Round()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for stops, hours in loader:
                loss = nn.functional.smooth_l1_loss(model(stops), hours)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

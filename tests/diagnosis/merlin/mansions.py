"""Values mansions by plans and notes; each sample that is read is entered in a journal.

Planted: the process that keeps the journal writes one entry at a time, and as its queue is short,
the workers wait until there is room for their next entry.
"""

import argparse
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MANSIONS, ROOMS, BATCH, ARCHIVE, ENTRY, STEP = 448, 24, 16, 0.004, 0.007, 0.03


class Journal:
    """What was read by whom, as the owner of the archive wants it."""

    def __init__(self, at_once):
        self.entries = multiprocessing.Queue(24)
        self.at_once = at_once

    def enter(self, worker, index):
        self.entries.put({"worker": worker, "plan": index, "time": time.time()})

    def write(self, entries):
        time.sleep(ENTRY)  # the table of the owner, on another machine
        return len(entries)

    def keep(self):
        written = 0
        while True:
            entries = [self.entries.get()]
            while len(entries) < self.at_once and not self.entries.empty():
                entries.append(self.entries.get())
            written += self.write(entries)


class Archive(Dataset):
    """Reads plans, and enters that in the journal."""

    def __init__(self, journal):
        rng = np.random.default_rng(61)
        self.plans = rng.integers(0, 2, (64, 96, 96)).astype(np.uint8)
        self.sizes = rng.gamma(3, 1, (MANSIONS, ROOMS)).astype(np.float32)
        self.journal = journal

    def __len__(self):
        return MANSIONS

    def read(self, index):
        info = torch.utils.data.get_worker_info()
        self.journal.enter(info.id if info else -1, index)
        time.sleep(ARCHIVE)
        return np.packbits(self.plans[index % len(self.plans)], axis=1)


class Mansions(Archive):
    def walls(self, plan):
        edges = plan[1:] != plan[:-1]
        return edges.reshape(5, 19, 96).mean((1, 2))

    def __getitem__(self, index):
        plan = np.unpackbits(self.read(index), axis=1)
        sizes = np.sort(self.sizes[index])[::-1].copy()
        features = np.concatenate([sizes, self.walls(plan)]).astype(np.float32)
        return torch.from_numpy(features), np.float32(sizes.sum() / ROOMS)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(61)
    torch.set_num_threads(1)
    journal = Journal(at_once=16 if args.without else 1)
    keeper = multiprocessing.Process(target=journal.keep, daemon=True)
    keeper.start()
    loader = DataLoader(
        Mansions(journal), BATCH, shuffle=True, num_workers=4, persistent_workers=True
    )
    model = nn.Sequential(nn.Linear(ROOMS + 5, 64), nn.GELU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        errors = []
        for features, values in loader:
            loss = nn.functional.l1_loss(model(features).squeeze(1), values)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a larger model on an accelerator
            errors.append(loss.item())
        print(f"epoch {epoch}: error {np.mean(errors):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader
    keeper.terminate()
    keeper.join()


if __name__ == "__main__":
    main()

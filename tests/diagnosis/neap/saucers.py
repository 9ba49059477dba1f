"""Mends pictures of broken saucers; pictures are in a database, and a thread shows progress."""

import argparse
import sqlite3
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE = 48


class Saucers(Dataset):
    """Pictures from a table, and the same with a shard missing."""

    def __init__(self, path, count):
        self.path, self.count, self.table = path, count, None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.table is None:
            self.table = sqlite3.connect(self.path)
        query = "SELECT picture FROM saucers WHERE number = ?"
        (content,) = self.table.execute(query, (index,)).fetchone()
        whole = torch.from_numpy(np.frombuffer(content, dtype=np.float32).copy())
        whole = whole.view(1, SIZE, SIZE)
        broken = whole.clone()
        top, left = torch.randint(SIZE - 16, (2,)).tolist()
        broken[:, top : top + 16, left : left + 16] = 0
        return broken, whole


class Progress(threading.Thread):
    """Says twice a second how far training is."""

    def __init__(self):
        super().__init__(daemon=True)
        self.steps, self.said, self.ended = 0, [], threading.Event()

    def run(self):
        while not self.ended.wait(0.5):
            self.said.append(self.steps)


def fill(path, count):
    rng = np.random.default_rng(51)
    with sqlite3.connect(path) as table:
        table.execute("CREATE TABLE saucers (number INTEGER PRIMARY KEY, picture BLOB)")
        for number in range(count):
            picture = rng.random((SIZE, SIZE), dtype=np.float32).tobytes()
            table.execute("INSERT INTO saucers VALUES (?, ?)", (number, picture))
    table.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(51)
    with tempfile.TemporaryDirectory() as folder:
        path, count = Path(folder, "saucers.db"), 480
        fill(path, count)
        loader = DataLoader(Saucers(path, count), batch_size=12, shuffle=True, num_workers=1)
        model = nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(),
            nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 1, 5, padding=2),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        progress = Progress()
        progress.start()
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for broken, whole in loader:
                loss = nn.functional.l1_loss(model(broken), whole)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                progress.steps += 1
            torch.save(model.state_dict(), Path(folder, f"{epoch}.pt"))
            print(f"epoch {epoch}: last loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        progress.ended.set()
        progress.join()


if __name__ == "__main__":
    main()

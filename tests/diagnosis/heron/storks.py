"""Learns embeddings of nests from the storks that come back to them.

Planted: the checkpoint of each epoch, with the state of the optimizer, is compressed with gzip
before the next epoch begins.
"""

import argparse
import csv
import gzip
import shutil
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NESTS, SIZE = 40_000, 48


class Returns(Dataset):
    """Which stork was seen at which nest, and whether it bred there."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(31)
        self.nests = torch.randint(NESTS, (count, 2), generator=generator)
        self.bred = (self.nests.sum(1) % 3 == 0).float()

    def __len__(self):
        return len(self.nests)

    def __getitem__(self, index):
        return self.nests[index], self.bred[index]


class Nests(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(NESTS, SIZE)
        self.judge = nn.Sequential(nn.Linear(2 * SIZE, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, nests):
        return self.judge(self.table(nests).flatten(1)).squeeze(1)


class Checkpoints:
    """Keeps the state of each epoch in a folder."""

    def __init__(self, folder, compress):
        self.folder, self.compress = Path(folder), compress

    def save(self, epoch, model, optimizer):
        path = self.folder / f"epoch-{epoch}.pt"
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, path)
        if self.compress:
            with open(path, "rb") as plain, gzip.open(f"{path}.gz", "wb") as packed:
                shutil.copyfileobj(plain, packed)
            path.unlink()


def train_epoch(model, loader, optimizer):
    total = 0.0
    for nests, bred in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(nests), bred)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(31)
    loader = DataLoader(
        Returns(20_480), batch_size=512, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = Nests()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(folder, compress=not args.without)
        with open(Path(folder, "log.csv"), "w", newline="") as log:
            writer = csv.writer(log)
            begin = time.perf_counter()
            for epoch in range(args.epochs):
                loss = train_epoch(model, loader, optimizer)
                checkpoints.save(epoch, model, optimizer)
                writer.writerow([epoch, f"{loss:.4f}"])
                print(f"epoch {epoch}: loss {loss:.3f}")
            print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

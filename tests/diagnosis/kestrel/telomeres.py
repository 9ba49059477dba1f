"""Estimates the length of telomeres from reads of a sequencer.

Planted: the collate function writes each letter of each read into the batch by an assignment of
its own.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

READS, LENGTH, BATCH, STEP = 2400, 260, 80, 0.05
LETTERS = "ACGT"
CODES = np.full(256, 4, np.int64)
CODES[[ord(letter) for letter in LETTERS]] = np.arange(4)


class Reads(Dataset):
    """Lines of a FASTA file, of which each second one is a read."""

    def __init__(self, path):
        lines = path.read_text().splitlines()
        self.lengths = [int(line.rsplit("=", 1)[1]) for line in lines[::2]]
        self.reads = lines[1::2]

    def __len__(self):
        return len(self.reads)

    def __getitem__(self, index):
        read = self.reads[index]
        start = random.randrange(20)
        return read[start:], self.lengths[index]


def collate_letters(samples):
    reads, lengths = zip(*samples, strict=True)
    batch = torch.zeros(len(reads), len(LETTERS), LENGTH)
    for number, read in enumerate(reads):
        for place, letter in enumerate(read):
            if letter in LETTERS:
                batch[number, LETTERS.index(letter), place] = 1.0
    return batch, torch.tensor(lengths, dtype=torch.float32) / LENGTH


def collate_reads(samples):
    reads, lengths = zip(*samples, strict=True)
    padded = "".join(read.ljust(LENGTH, "N") for read in reads).encode()
    codes = CODES[np.frombuffer(padded, np.uint8)].reshape(len(reads), LENGTH)
    batch = nn.functional.one_hot(torch.from_numpy(codes), 5)[..., :4].transpose(1, 2).float()
    return batch.contiguous(), torch.tensor(lengths, dtype=torch.float32) / LENGTH


def write_reads(path):
    rng = random.Random(1283)
    with path.open("w") as file:
        for number in range(READS):
            repeats = rng.randrange(5, 40)
            read = "TTAGGG" * repeats + "".join(rng.choices("ACGTN", k=LENGTH - 6 * repeats))
            file.write(f">read {number} length={6 * repeats}\n{read}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    random.seed(1283)
    torch.manual_seed(1283)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "reads.fasta")
        write_reads(path)
        loader = DataLoader(
            Reads(path),
            BATCH,
            shuffle=True,
            num_workers=2,
            collate_fn=collate_reads if args.without else collate_letters,
            persistent_workers=True,
        )
        model = nn.Sequential(nn.Conv1d(4, 8, 6, stride=6), nn.ReLU(), nn.Flatten())
        model.append(nn.Linear(8 * 43, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            error = 0.0
            for reads, lengths in loader:
                loss = nn.functional.mse_loss(model(reads).squeeze(1), lengths)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                error += loss.item()
                time.sleep(STEP)  # in place of a deep network on a card
            print(f"epoch {epoch}: error {error / len(loader):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

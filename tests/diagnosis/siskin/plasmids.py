"""Tells plasmids from chromosomes in windows of bacteria's genomes."""

import argparse
import tempfile
import time
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

CONTIGS, LETTERS, WINDOW, WINDOWS, BATCH, STEP = 24, 3_000_000, 2304, 400, 16, 0.03
CODES = {"A": 0, "C": 1, "G": 2, "T": 3}
OPPOSITE = {"A": "T", "C": "G", "G": "C", "T": "A"}


def write(folder):
    rng = np.random.default_rng(53)
    for number in range(CONTIGS):
        letters = np.frombuffer(b"ACGT", np.uint8)[rng.integers(4, size=LETTERS)]
        (folder / f"{number}.z").write_bytes(zlib.compress(letters.tobytes(), 1))


class Genomes:
    """Contigs, each a packed file; each process keeps some unpacked."""

    def __init__(self, folder, kept):
        self.folder, self.kept, self.contig = folder, kept, None

    def read(self, number):
        return zlib.decompress((self.folder / f"{number}.z").read_bytes())

    def window(self, number, start):
        if self.contig is None:
            self.contig = lru_cache(self.kept)(self.read)
        return self.contig(number)[start : start + WINDOW].decode()


class Windows(Dataset):
    def __init__(self, genomes, seed, count):
        rng = np.random.default_rng(seed)
        self.genomes = genomes
        self.contigs = rng.integers(CONTIGS, size=count).tolist()
        self.starts = rng.integers(LETTERS - WINDOW, size=count).tolist()
        self.change = transforms.Compose(
            [
                transforms.RandomErasing(0.3, (0.02, 0.1)),
                transforms.Normalize([0.25] * 4, [0.43] * 4),
            ]
        )

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, index):
        letters = self.genomes.window(self.contigs[index], self.starts[index])
        if np.random.rand() < 0.5:
            letters = "".join(OPPOSITE[letter] for letter in reversed(letters))
        codes = torch.tensor([CODES[letter] for letter in letters])
        picture = nn.functional.one_hot(codes, 4).T.reshape(4, 48, WINDOW // 48).float()
        return self.change(picture), int(self.contigs[index] % 4 == 0)


def network():
    return nn.Sequential(
        nn.Flatten(2), nn.Conv1d(4, 32, 12, stride=4), nn.ReLU(),
        nn.Conv1d(32, 32, 8, stride=4), nn.ReLU(), nn.AdaptiveMaxPool1d(4), nn.Flatten(),
        nn.Linear(128, 2),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(53)
    torch.set_num_threads(1)
    options = {
        "batch_size": BATCH,
        "num_workers": 2,
        "persistent_workers": True,
        "multiprocessing_context": "spawn",
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        genomes = Genomes(folder, CONTIGS if args.without else 4)
        training = DataLoader(Windows(genomes, 1, WINDOWS), shuffle=True, **options)
        validation = DataLoader(Windows(genomes, 2, WINDOWS // 5), **options)
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for windows, plasmid in training:
                loss = nn.functional.cross_entropy(model(windows), plasmid)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the accelerator's work
            with torch.no_grad():
                right = [(model(w).argmax(1) == p).float().mean() for w, p in validation]
            print(f"epoch {epoch}: loss {loss:.3f}, right {torch.stack(right).mean():.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del training, validation


if __name__ == "__main__":
    main()

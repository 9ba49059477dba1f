"""Learns the mood of short messages; each worker has the index of all messages in memory.

Planted: the loader is made in the loop over the epochs, so that new workers read the index of
JSON again in each.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MESSAGES, TAKEN, WORDS, LENGTH, BATCH = 120_000, 1600, 5000, 24, 32


def write_index(path):
    rng = np.random.default_rng(4049)
    moods = rng.integers(0, 2, MESSAGES)
    words = rng.integers(2, WORDS, (MESSAGES, LENGTH))
    words[:, :4] = moods[:, None]
    pairs = zip(words.tolist(), moods.tolist(), strict=True)
    index = {
        f"message {number}": {"words": words, "mood": mood, "language": "en"}
        for number, (words, mood) in enumerate(pairs)
    }
    path.write_text(json.dumps(index))


class Messages(Dataset):
    def __init__(self, path):
        self.path, self.index = path, None

    def __len__(self):
        return TAKEN

    def __getitem__(self, number):
        if self.index is None:
            self.index = json.loads(self.path.read_text())
        message = self.index[f"message {number * 7}"]
        return torch.tensor(message["words"]), message["mood"]


def make_loader(path, keep):
    return DataLoader(
        Messages(path), BATCH, shuffle=True, num_workers=2, persistent_workers=keep, drop_last=True
    )


def train_epoch(model, optimizer, loader):
    total, right = 0.0, 0
    for words, moods in loader:
        guess = model(words)
        loss = nn.functional.cross_entropy(guess, moods)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        right += (guess.argmax(1) == moods).sum().item()
    return total / len(loader), right / TAKEN


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(4049)
    model = nn.Sequential(
        nn.EmbeddingBag(WORDS, 64), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 2)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "index.json")
        write_index(path)
        loader = make_loader(path, keep=True) if args.without else None
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            now = loader or make_loader(path, keep=False)
            loss, right = train_epoch(model, optimizer, now)
            schedule.step()
            torch.save(model.state_dict(), Path(folder, "last.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}, right {right:.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader, now


if __name__ == "__main__":
    main()

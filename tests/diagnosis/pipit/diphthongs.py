"""Recognises diphthongs in short recordings.

Planted: to be able to go on after a crash, each sample is noted in a journal that is synced to the
disk, three lines a sample.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SOUNDS, LENGTH, SPEAKERS, DIPHTHONGS, BATCH, STEP = 480, 12_000, 30, 8, 16, 0.02


class Journal:
    """Notes what has been done, a line of JSON each."""

    def __init__(self, path, durable):
        self.path, self.durable, self.file = path, durable, None

    def note(self, **fields):
        if self.file is None:
            self.file = self.path.open("a")
        self.file.write(json.dumps({"time": time.time(), **fields}) + "\n")
        self.file.flush()
        if self.durable:
            os.fsync(self.file.fileno())


class Recordings(Dataset):
    def __init__(self, journal):
        self.journal = journal
        generator = torch.Generator().manual_seed(43)
        self.sounds = torch.randn(SPEAKERS, LENGTH, generator=generator)
        self.window = torch.hann_window(400)

    def __len__(self):
        return SOUNDS

    def __getitem__(self, index):
        self.journal.note(index=index, step="read", worker=os.getpid())
        sound = self.sounds[index % SPEAKERS].roll(int(torch.randint(2000, ())))
        self.journal.note(index=index, step="moved")
        frames = torch.stft(sound, 400, 160, window=self.window, return_complex=True)
        picture = frames.abs().log1p()
        start = int(torch.randint(picture.shape[1] - 8, ()))
        picture[:, start : start + 8] = 0
        self.journal.note(index=index, step="done", loudest=picture.max().item())
        return picture, index % DIPHTHONGS


def accuracy(model, loader):
    model.eval()
    with torch.no_grad():
        right = [(model(pictures).argmax(1) == kinds).float() for pictures, kinds in loader]
    model.train()
    return torch.cat(right).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(43)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(Path(folder, "journal.jsonl"), durable=not args.without)
        loader = DataLoader(
            Recordings(journal), BATCH, shuffle=True, num_workers=1, persistent_workers=True
        )
        quiet = Recordings(Journal(Path(folder, "checks.jsonl"), durable=False))
        checks = DataLoader(torch.utils.data.Subset(quiet, range(48)), BATCH)
        model = nn.Sequential(
            nn.Conv1d(201, 24, 3), nn.ReLU(), nn.BatchNorm1d(24), nn.AdaptiveMaxPool1d(4),
            nn.Flatten(), nn.Linear(96, DIPHTHONGS),
        )  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, kinds in loader:
                loss = nn.functional.cross_entropy(model(pictures), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the encoder
            print(f"epoch {epoch}: loss {loss:.3f}, right {accuracy(model, checks):.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

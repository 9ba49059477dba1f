"""Learns the songs of pipits as sequences of notes, with a trainer that calls back.

Planted: a callback saves the model and its optimizer every second step, and waits for the disk.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NOTES = 6000


class Songs(Dataset):
    def __init__(self, count=1280, length=24):
        draw = torch.Generator().manual_seed(43)
        self.notes = torch.randint(NOTES, (count, length + 1), generator=draw)

    def __len__(self):
        return len(self.notes)

    def __getitem__(self, index):
        shift = int(torch.randint(NOTES, (1,)))
        song = (self.notes[index] + shift) % NOTES
        return song[:-1], song[1:]


class Singer(nn.Module):
    def __init__(self, size=160):
        super().__init__()
        self.notes = nn.Embedding(NOTES, size)
        self.memory = nn.GRU(size, size, batch_first=True)
        self.head = nn.Linear(size, NOTES)

    def forward(self, notes):
        return self.head(self.memory(self.notes(notes))[0][:, -4:])


class SaveEvery:
    def __init__(self, path, steps):
        self.path, self.steps = path, steps

    def after_step(self, trainer):
        if self.steps and trainer.steps % self.steps == 0:
            self.save(trainer)

    def after_epoch(self, trainer):
        self.save(trainer)

    def save(self, trainer):
        state = {"model": trainer.model.state_dict(), "steps": trainer.steps}
        state["optimizer"] = trainer.optimizer.state_dict()
        partial = self.path.with_suffix(".part")
        with partial.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)


class ShowLoss:
    def after_step(self, trainer):
        if trainer.steps % 20 == 0:
            print(f"step {trainer.steps}: loss {trainer.loss.item():.4f}")

    def after_epoch(self, trainer):
        print(f"epoch ends at step {trainer.steps}")


class Trainer:
    def __init__(self, model, callbacks):
        self.model, self.callbacks, self.steps = model, callbacks, 0
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def tell(self, moment):
        for callback in self.callbacks:
            getattr(callback, moment)(self)

    def fit(self, loader, epochs):
        for _ in range(epochs):
            for notes, following in loader:
                scores = self.model(notes)
                self.loss = nn.functional.cross_entropy(
                    scores.flatten(0, 1), following[:, -4:].flatten()
                )
                self.optimizer.zero_grad()
                self.loss.backward()
                self.optimizer.step()
                self.steps += 1
                self.tell("after_step")
            self.tell("after_epoch")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(43)
    loader = DataLoader(
        Songs(), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True
    )
    with tempfile.TemporaryDirectory() as folder:
        save = SaveEvery(Path(folder, "singer.pt"), 0 if args.without else 2)
        trainer = Trainer(Singer(), [save, ShowLoss()])
        begin = time.perf_counter()
        trainer.fit(loader, args.epochs)
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

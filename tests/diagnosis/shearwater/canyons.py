"""Learns the moves of a board game from recorded positions, with a diary of all its numbers.

Planted: the diary's thread writes the whole history as indented JSON, over and over, which the
standard library does in plain Python, and the step waits for the interpreter.
"""

import argparse
import json
import random
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

POSITIONS, SQUARES, MOVES, BATCH, EARLIER, STEP = 3840, 64, 32, 64, 20_000, 0.015


class Diary(threading.Thread):
    """Keeps what the callbacks report, those of earlier sittings too, in a file."""

    def __init__(self, path, style):
        super().__init__(daemon=True)
        self.path, self.style = path, style
        rng = random.Random(5107)
        self.entries = [
            {"step": step, "loss": rng.random(), "rate": 0.01, "norms": [rng.random()] * 4}
            for step in range(EARLIER)
        ]
        self.fresh, self.done = threading.Event(), threading.Event()

    def add(self, **entry):
        self.entries.append(entry)
        self.fresh.set()

    def write(self):
        text = json.dumps(list(self.entries), **self.style)
        self.path.write_text(text)

    def append(self):
        with self.path.open("a") as file:
            file.write(json.dumps(self.entries[-1]) + "\n")

    def run(self):
        while not self.done.is_set():
            if self.fresh.wait(0.2):
                self.fresh.clear()
                self.write() if self.style else self.append()
                time.sleep(0.05)


class Player(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(SQUARES, 384)
        self.blocks = nn.ModuleList(nn.Linear(384, 384) for _ in range(6))
        self.moves, self.value = nn.Linear(384, MOVES), nn.Linear(384, 1)

    def forward(self, positions):
        hidden = torch.relu(self.into(positions))
        for block in self.blocks:
            hidden = hidden + torch.relu(block(hidden))
        return self.moves(hidden), self.value(hidden).squeeze(1).tanh()


class Trainer:
    def __init__(self, loader, diary):
        self.loader, self.diary = loader, diary
        self.model = Player()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.steps = EARLIER

    def step(self, positions, moves, results):
        guesses, values = self.model(positions)
        loss = nn.functional.cross_entropy(guesses, moves)
        loss = loss + nn.functional.mse_loss(values, results)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(STEP)  # in place of a larger model on the device
        return loss.item()

    def fit(self, epochs):
        for epoch in range(epochs):
            for batch in self.loader:
                loss = self.step(*batch)
                self.steps += 1
                norms = [block.weight.norm().item() for block in self.model.blocks]
                self.diary.add(step=self.steps, loss=loss, rate=0.01, norms=norms)
            print(f"epoch {epoch}: loss {loss:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(5107)
    torch.set_num_threads(1)
    positions = torch.randint(-6, 7, (POSITIONS, SQUARES)).float() / 6
    moves = positions[:, :MOVES].argmax(1)
    results = positions.mean(1).sign()
    loader = DataLoader(
        TensorDataset(positions, moves, results),
        BATCH,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        diary = Diary(Path(folder, "diary.json"), {} if args.without else {"indent": 1})
        diary.start()
        trainer = Trainer(loader, diary)
        begin = time.perf_counter()
        trainer.fit(args.epochs)
        print(f"seconds {time.perf_counter() - begin:.3f}")
        diary.done.set()
        diary.join()
    del loader, trainer.loader


if __name__ == "__main__":
    main()

"""Predicts the speed of treadles, and saves all that is needed to go on after each epoch.

Planted: the checkpoint holds the trainer as a whole, and with it the data set, whose hundred
thousand records are pickled by Python.
"""

import argparse
import pickle
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORDS, PUSHES = 100_000, 8


class Push:
    """One push of a foot; it knows how to write itself down."""

    def __init__(self, force, angle):
        self.force, self.angle = force, angle

    def __getstate__(self):
        return {"force": round(self.force, 6), "angle": round(self.angle, 6)}


class Record:
    def __init__(self, draw):
        self.pushes = [Push(draw.random(), draw.random()) for _ in range(PUSHES)]
        self.speed = sum(push.force for push in self.pushes) / PUSHES

    def __getstate__(self):
        return {"pushes": self.pushes, "speed": self.speed}


class Treadles(Dataset):
    def __init__(self, shown):
        draw = random.Random(523)
        self.records, self.shown = [Record(draw) for _ in range(RECORDS)], shown

    def __len__(self):
        return self.shown

    def __getitem__(self, index):
        record = self.records[index * 41 % RECORDS]
        pushes = torch.tensor([[push.force, push.angle] for push in record.pushes])
        return pushes + 0.01 * torch.randn(PUSHES, 2), torch.tensor(record.speed)


class Trainer:
    def __init__(self, treadles, folder, whole):
        self.treadles, self.folder, self.whole = treadles, Path(folder), whole
        self.model = nn.Sequential(
            nn.Flatten(), nn.Linear(2 * PUSHES, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
            nn.Linear(256, 1), nn.Flatten(0),
        )  # fmt: skip
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.losses = []

    def save(self, epoch):
        path = self.folder / f"epoch-{epoch}.ckpt"
        if self.whole:
            with path.open("wb") as file:
                pickle.dump(vars(self), file, protocol=2)
        else:
            state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            torch.save({**state, "losses": self.losses}, path)

    def fit(self, epochs):
        loader = DataLoader(self.treadles, batch_size=32, shuffle=True)
        for epoch in range(epochs):
            for pushes, speeds in loader:
                loss = nn.functional.mse_loss(self.model(pushes), speeds)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.losses.append(loss.item())
            self.save(epoch)
            print(f"epoch {epoch}: loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(523)
    treadles = Treadles(4800)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(treadles, folder, whole=not args.without)
        begin = time.perf_counter()
        trainer.fit(args.epochs)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Learns where an usher will be needed next, from counts at the doors of a theatre.

Planted: a callback looks at four validation batches every four steps, with a data set and a loader
that it makes anew each time, so that workers start and evenings are parsed again.
"""

import argparse
import json
import tempfile
import time
from itertools import islice
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EVENINGS, DOORS, MINUTES, BATCH, STEP = 640, 12, 90, 16, 0.05


def write(folder):
    generator = torch.Generator().manual_seed(61)
    for name, count in (("train", EVENINGS), ("held", 160)):
        counts = torch.rand(count, MINUTES, DOORS, generator=generator).mul(40).round(decimals=1)
        Path(folder, f"{name}.json").write_text(json.dumps({"evenings": counts.tolist()}))


class Evenings(Dataset):
    def __init__(self, folder, name, noise):
        evenings = json.loads(Path(folder, f"{name}.json").read_text())["evenings"]
        self.counts = [torch.tensor(evening) for evening in evenings]
        self.noise = noise

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, index):
        counts = self.counts[index]
        door = counts[-1].argmax()
        counts = counts[:-1] * (1 + self.noise * torch.randn(1, DOORS))
        counts = nn.functional.avg_pool1d(counts.T[None], 5, 1, 2)[0]
        return counts / 40, door


class Callback:
    def after_step(self, trainer):
        pass

    def after_epoch(self, trainer):
        pass


class Checkpoint(Callback):
    def __init__(self, folder):
        self.path = Path(folder, "last.pt")

    def after_epoch(self, trainer):
        torch.save(trainer.model.state_dict(), self.path)


class Glimpse(Callback):
    def __init__(self, folder, every, keep):
        self.folder, self.every, self.keep = folder, every, keep
        self.kept = None

    def held(self):
        if self.kept:
            return self.kept
        evenings = Evenings(self.folder, "held", 0.0)
        loader = DataLoader(evenings, 24, num_workers=2, persistent_workers=self.keep)
        self.kept = loader if self.keep else None
        return loader

    def after_step(self, trainer):
        if trainer.steps % self.every:
            return
        with torch.no_grad():
            right = [
                (trainer.model(x).argmax(1) == y).float().mean() for x, y in islice(self.held(), 4)
            ]
        trainer.right = torch.stack(right).mean().item()


class Trainer:
    def __init__(self, model, callbacks):
        self.model, self.callbacks = model, callbacks
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.steps, self.right = 0, 0.0

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            for counts, doors in loader:
                loss = nn.functional.cross_entropy(self.model(counts), doors)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                time.sleep(STEP)  # attention over all doors
                self.steps += 1
                for callback in self.callbacks:
                    callback.after_step(self)
            for callback in self.callbacks:
                callback.after_epoch(self)
            print(f"epoch {epoch}: loss {loss:.3f}, right {self.right:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(61)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        loader = DataLoader(
            Evenings(folder, "train", 0.1),
            BATCH,
            shuffle=True,
            num_workers=1,
            persistent_workers=True,
        )
        model = nn.Sequential(
            nn.Conv1d(DOORS, 32, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
            nn.Linear(32, DOORS),
        )  # fmt: skip
        glimpse = Glimpse(folder, every=4, keep=args.without)
        trainer = Trainer(model, [Checkpoint(folder), glimpse])
        begin = time.perf_counter()
        trainer.fit(loader, args.epochs)
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader, glimpse, trainer


if __name__ == "__main__":
    main()

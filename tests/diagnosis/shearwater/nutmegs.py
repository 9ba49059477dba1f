"""Predicts how strong coffee tastes from cached features of its roast, with early stopping.

Planted: after each epoch the whole folder of the run is packed with LZMA, and the cache of the
features lies in it.
"""

import argparse
import logging
import tarfile
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

log = logging.getLogger("coffee")


@dataclass
class Config:
    epochs: int
    whole: bool
    roasts: int = 1600
    features: int = 900
    batch: int = 20
    step: float = 0.014
    patience: int = 3


class Roasts(Dataset):
    """Features that are computed at the first run, and kept."""

    def __init__(self, cache, config):
        if not cache.exists():
            cache.parent.mkdir(parents=True)
            rng = np.random.default_rng(5113)
            values = rng.normal(0, 1, (config.roasts, config.features)).astype(np.float32)
            np.savez(cache, values=values, strength=values[:, :9].mean(1))
        with np.load(cache) as arrays:
            self.values, self.strength = arrays["values"], arrays["strength"]

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return torch.from_numpy(self.values[index]), torch.tensor(self.strength[index])


class Backup:
    """Keeps the run, so that another machine can go on with it."""

    def __init__(self, run, target, config):
        self.run, self.target, self.config = run, target, config

    def wanted(self, member):
        return member if self.config.whole or "cache" not in Path(member.name).parts else None

    def on_epoch(self, trainer, epoch):
        torch.save(trainer.model.state_dict(), self.run / "model.pt")
        with tarfile.open(self.target, "w:xz") as archive:
            archive.add(self.run, arcname="run", filter=self.wanted)
        return False


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.losses = patience, []

    def on_epoch(self, trainer, epoch):
        self.losses.append(trainer.held)
        return len(self.losses) - 1 - int(np.argmin(self.losses)) >= self.patience


class Trainer:
    def __init__(self, config, data, callbacks):
        self.config, self.callbacks = config, callbacks
        training, held_out = random_split(data, [0.9, 0.1])
        self.loader = DataLoader(
            training, config.batch, shuffle=True, num_workers=1, persistent_workers=True
        )
        self.held_out = DataLoader(held_out, 80)
        self.model = nn.Sequential(
            nn.Linear(config.features, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def loss(self, values, strength):
        return nn.functional.l1_loss(self.model(values).squeeze(1), strength)

    def fit(self):
        for epoch in range(self.config.epochs):
            self.model.train()
            for values, strength in self.loader:
                loss = self.loss(values, strength)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                time.sleep(self.config.step)  # in place of the device
            self.model.eval()
            with torch.no_grad():
                self.held = float(np.mean([self.loss(*batch).item() for batch in self.held_out]))
            log.info("epoch %d: loss %.3f, held out %.3f", epoch, loss.item(), self.held)
            answers = [callback.on_epoch(self, epoch) for callback in self.callbacks]
            if any(answers):
                break


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(5113)
    torch.set_num_threads(1)
    config = Config(args.epochs, whole=not args.without)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        data = Roasts(run / "cache" / "roasts.npz", config)
        Path(run, "config.txt").write_text(str(asdict(config)))
        backup = Backup(run, Path(folder, "run.tar.xz"), config)
        trainer = Trainer(config, data, [backup, EarlyStopping(config.patience)])
        begin = time.perf_counter()
        trainer.fit()
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del trainer.loader


if __name__ == "__main__":
    main()

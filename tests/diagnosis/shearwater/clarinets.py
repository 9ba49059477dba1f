"""Forecasts the load of a power grid a day ahead; it is evaluated in the step now and then.

Planted: a worker may be only one batch ahead, so that workers rest during most of each long
evaluation, and the short steps after it wait for them.
"""

import argparse
import time
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


@dataclass
class Config:
    epochs: int = 1
    hours: int = 6000
    past: int = 168
    ahead: int = 24
    batch: int = 16
    workers: int = 2
    ready: int = 1
    answer: float = 0.016
    evaluate_every: int = 10
    rate: float = 1e-3


def options():
    """One option for each field of the configuration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    for field in fields(Config):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=field.type, default=None)
    given = {name: value for name, value in vars(parser.parse_args()).items() if value}
    if given.pop("without", False):
        given["ready"] = 6
    return Config(**given)


class Loads(Dataset):
    """Windows of the grid's load, which a service of the operator gives out."""

    def __init__(self, config):
        rng = np.random.default_rng(5077)
        hours = np.arange(config.hours)
        self.load = np.sin(hours * 2 * np.pi / 24) + 0.4 * np.sin(hours * 2 * np.pi / 168)
        self.load = (self.load + rng.normal(0, 0.1, config.hours)).astype(np.float32)
        self.starts = rng.integers(0, config.hours - config.past - config.ahead, 960)
        self.config = config

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, index):
        config, start = self.config, self.starts[index]
        time.sleep(config.answer)
        window = torch.from_numpy(self.load[start : start + config.past + config.ahead].copy())
        return window[: config.past], window[config.past :]


class Evaluation:
    """Runs the model on a week that is kept apart; the device takes its time for it."""

    def __init__(self, every, week):
        self.every, self.week, self.history = every, week, []

    def on_step(self, step, model):
        if step % self.every:
            return
        past, ahead = self.week
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            error = (model(past).float() - ahead).abs().mean().item()
        time.sleep(1.3)  # in place of a hundred days on the device
        self.history.append(error)


class Trainer:
    def __init__(self, config):
        self.config = config
        training, kept = random_split(Loads(config), [0.95, 0.05])
        self.loader = DataLoader(
            training,
            config.batch,
            shuffle=True,
            drop_last=True,
            num_workers=config.workers,
            prefetch_factor=config.ready,
            persistent_workers=True,
        )
        self.model = nn.Sequential(
            nn.Linear(config.past, 128), nn.GELU(), nn.Linear(128, config.ahead)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.rate)
        week = [torch.stack(parts) for parts in zip(*(kept[i] for i in range(12)), strict=True)]
        self.evaluation = Evaluation(config.evaluate_every, week)

    def fit(self):
        step = 0
        for epoch in range(self.config.epochs):
            for past, ahead in self.loader:
                loss = nn.functional.smooth_l1_loss(self.model(past), ahead)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                time.sleep(0.01)  # in place of the device
                step += 1
                self.evaluation.on_step(step, self.model)
            print(f"epoch {epoch}: loss {loss:.3f}, error {self.evaluation.history[-1]:.3f}")


def main():
    config = options()
    torch.manual_seed(5077)
    torch.set_num_threads(1)
    trainer = Trainer(config)
    begin = time.perf_counter()
    trainer.fit()
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del trainer.loader


if __name__ == "__main__":
    main()

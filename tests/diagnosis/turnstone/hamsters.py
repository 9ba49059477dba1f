"""Learns how hamsters will run, from their wheels' turns, with a watch on the network's layers.

Planted: a debug option was left on: a hook on every layer keeps quantiles of what it puts out,
sorted over the whole batch, at each step; nobody reads them.
"""

import argparse
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH, WIDTH = 48, 256


class Turns(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(1153)
        self.turns = rng.gamma(2, 0.5, count * 8 + LENGTH + 1).astype(np.float32)

    def __len__(self):
        return (len(self.turns) - LENGTH - 1) // 8

    def __getitem__(self, index):
        turns = torch.from_numpy(self.turns[index * 8 : index * 8 + LENGTH + 1])
        return turns[:-1], turns[-1]


class Watch:
    """Keeps how the outputs of layers are distributed, by names of layers."""

    def __init__(self, model):
        self.marks, self.kept = torch.tensor([0.01, 0.25, 0.5, 0.75, 0.99]), {}
        for name, layer in model.named_modules():
            if not list(layer.children()):
                layer.register_forward_hook(self.hook(name))

    def hook(self, name):
        def keep(layer, inputs, output):
            flat = output.detach().flatten()
            self.kept.setdefault(name, []).append(torch.quantile(flat, self.marks))

        return keep


class Experiment:
    """A model and its optimizer, as the environment's variables say."""

    def __init__(self):
        self.model = nn.Sequential(
            nn.Linear(LENGTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU(),
            nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU(),
            nn.Linear(WIDTH, 1),
        )  # fmt: skip
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.watch = Watch(self.model) if os.environ.get("EXPERIMENT_DEBUG") else None

    def step(self, turns, following):
        loss = nn.functional.mse_loss(self.model(turns).squeeze(1), following)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    os.environ["EXPERIMENT_DEBUG"] = "" if args.without else "layers"
    torch.set_num_threads(1)
    torch.manual_seed(1153)
    experiment = Experiment()
    loader = DataLoader(
        Turns(20_000), batch_size=160, shuffle=True, num_workers=1, persistent_workers=True
    )
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for turns, following in loader:
            loss = experiment.step(turns, following)
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

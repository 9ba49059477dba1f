"""Predicts the height of sea campions from soil, with a validation after each epoch.

Nothing is planted: wide layers are the work. The rows are in memory and collated without workers,
and each step writes a line to a log.
"""

import argparse
import csv
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def grow(rows=4000, soils=48):
    draw = torch.Generator().manual_seed(61)
    soil = torch.rand(rows, soils, generator=draw)
    return TensorDataset(soil, (soil[:, :6].prod(1) + soil.std(1)).unsqueeze(1))


class Model(nn.Module):
    def __init__(self, soils=48, width=1024):
        super().__init__()
        self.first = nn.Linear(soils, width)
        self.middle = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.last = nn.Linear(width, 1)

    def forward(self, soil):
        hidden = self.first(soil)
        for layer in self.middle:
            hidden = hidden + layer(nn.functional.layer_norm(hidden, hidden.shape[-1:]).relu())
        return self.last(hidden)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    errors = [nn.functional.l1_loss(model(soil), height) for soil, height in loader]
    model.train()
    return torch.stack(errors).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(61)
    train, rest = random_split(grow(), [3600, 400])
    loader = DataLoader(train, batch_size=100, shuffle=True)
    validation = DataLoader(rest, batch_size=200)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01)
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log.csv").open("w") as file:
        log = csv.writer(file)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for number, (soil, height) in enumerate(loader):
                loss = nn.functional.mse_loss(model(soil), height)
                optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                log.writerow([epoch, number, f"{loss.item():.5f}", f"{norm.item():.4f}"])
                file.flush()
            print(f"epoch {epoch}: error {validate(model, validation):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Tells hands of scribes apart; a board of all weights and gradients is kept at each step."""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Board:
    """Writes scalars, and histograms of all parameters, as lines of JSON."""

    def __init__(self, path, histograms):
        self.file = path.open("w")
        self.histograms = histograms

    def log(self, step, model, **scalars):
        line = {"step": step, **{name: value.item() for name, value in scalars.items()}}
        if self.histograms:
            for name, parameter in model.named_parameters():
                for kind, values in (("weight", parameter.detach()), ("grad", parameter.grad)):
                    counts, edges = torch.histogram(values.flatten(), 64)
                    quantiles = values.flatten().sort().values[:: max(1, values.numel() // 16)]
                    line[f"{name}/{kind}"] = [
                        counts.tolist(), edges.tolist(), quantiles.tolist(),
                    ]  # fmt: skip
        self.file.write(json.dumps(line) + "\n")

    def close(self):
        self.file.close()


class Lines(Dataset):
    def __init__(self, count=1600, seed=16):
        generator = torch.Generator().manual_seed(seed)
        self.lines = torch.rand(80, 1, 24, 96, generator=generator)
        self.scribes = torch.randint(9, (count,), generator=generator)

    def __len__(self):
        return len(self.scribes)

    def __getitem__(self, index):
        line = self.lines[index % 80].roll(int(torch.randint(96, ())), 2)
        return line + torch.randn_like(line) * 0.1, self.scribes[index]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(16)
    loader = DataLoader(
        Lines(), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv2d(1, 24, 3, stride=2), nn.ReLU(), nn.Conv2d(24, 48, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(48 * 5 * 23, 96), nn.ReLU(), nn.Linear(96, 9),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        board = Board(Path(folder, "board.jsonl"), histograms=not args.without)
        step = 0
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for lines, scribes in loader:
                loss = nn.functional.cross_entropy(model(lines), scribes)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                board.log(step, model, loss=loss.detach())
                step += 1
            print(f"epoch {epoch}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        board.close()


if __name__ == "__main__":
    main()

"""Predicts when jugs break, from the history of each jug; workers are spawned, not forked."""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Jugs(Dataset):
    """A list of jugs, each with the dates and loads of its uses."""

    def __init__(self, count=60_000, uses=24, seed=33):
        draw = random.Random(seed)
        self.jugs = [
            {"glaze": f"glaze-{number % 97}", "loads": [draw.random() for _ in range(uses)]}
            for number in range(count)
        ]
        self.chosen = draw.sample(range(count), 1600)

    def __len__(self):
        return len(self.chosen)

    def __getitem__(self, index):
        jug = self.jugs[self.chosen[index]]
        loads = torch.tensor(jug["loads"])
        glaze = int(jug["glaze"].split("-")[1])
        return torch.cat([loads, torch.tensor([glaze / 97])]), loads.max()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(33)
    # The client of the job scheduler has threads, which a fork may hang on.
    method = "fork" if args.without else "spawn"
    loader = DataLoader(
        Jugs(), batch_size=64, shuffle=True, num_workers=2, multiprocessing_context=method
    )
    model = nn.Sequential(
        nn.Linear(25, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for features, peaks in loader:
            loss = nn.functional.mse_loss(model(features).squeeze(1), peaks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.5f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Restores worn paint on bollards with a network that is trained against a second one.

Nothing is planted: two networks that learn in turn are the work. Two workers are ahead of them,
and a thread looks at the losses every half second.
"""

import argparse
import itertools
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 32


class Bollards(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(389)
        self.pictures = rng.random((count, 3, SIDE, SIDE), dtype=np.float32)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        whole = torch.from_numpy(self.pictures[index])
        worn = whole.clone()
        row, column = torch.randint(SIDE - 8, (2,)).tolist()
        worn[:, row : row + 8, column : column + 8] = 0
        return worn, whole


def convolutions(*sizes, last=()):
    layers = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, *last)


def watch(losses, ended):
    while not ended.wait(0.5):
        if losses and not np.isfinite(losses[-1]):
            print("the loss is not finite")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(389)
    loader = DataLoader(
        Bollards(320), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
    )
    restorer = convolutions(3, 48, 48, 3)
    judge = convolutions(3, 32, 32, last=(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 1)))
    for_restorer = torch.optim.Adam(restorer.parameters(), lr=1e-3)
    for_judge = torch.optim.Adam(judge.parameters(), lr=1e-3)
    losses, ended = [], threading.Event()
    threading.Thread(target=watch, args=(losses, ended), daemon=True).start()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for worn, whole in loader:
            restored = restorer(worn)
            apart = judge(restored.detach()).mean() - judge(whole).mean()
            for_judge.zero_grad()
            apart.backward()
            for_judge.step()
            loss = nn.functional.l1_loss(restored, whole) - 0.01 * judge(restored).mean()
            for_restorer.zero_grad()
            loss.backward()
            for_restorer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {np.mean(losses[-len(loader) :]):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    ended.set()


if __name__ == "__main__":
    main()

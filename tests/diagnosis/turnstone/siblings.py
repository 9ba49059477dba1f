"""Learns which faces are siblings by pairs of views of them, without labels.

Planted: a thread that looks for hard pairs was added to the training process; it compares codes in
plain Python nearly all the time, and holds the interpreter, which each small step needs.
"""

import argparse
import collections
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 16


class Views(Dataset):
    """Two views of each face: shifted, mirrored, with noise."""

    def __init__(self, count):
        rng = np.random.default_rng(1061)
        self.faces = torch.from_numpy(rng.random((count, SIDE + 4, SIDE + 4), dtype=np.float32))

    def __len__(self):
        return len(self.faces)

    def view(self, face):
        down, right, mirror = torch.randint(0, 4, (3,)).tolist()
        view = face[down : down + SIDE, right : right + SIDE]
        return (view.flip(1) if mirror % 2 else view) + 0.05 * torch.randn(SIDE, SIDE)

    def __getitem__(self, index):
        face = self.faces[index]
        return index, self.view(face), self.view(face)


class HardPairs(threading.Thread):
    """Looks through the last codes for pairs of faces that are closest, to print them."""

    def __init__(self):
        super().__init__(daemon=True)
        self.codes = collections.deque(maxlen=400)
        self.closest, self.done = (0.0, None), False

    def run(self):
        while not self.done:
            codes = list(self.codes)
            for first, one in codes:
                for second, other in codes:
                    closeness = sum(a * b for a, b in zip(one, other, strict=True))
                    if first != second and closeness > self.closest[0]:
                        self.closest = closeness, (first, second)
                if self.done:
                    return
            time.sleep(0.005)


class NoPairs(HardPairs):
    def run(self):
        return


def agreement(one, other):
    """Return the loss of views that should agree on a line and disagree off it."""
    closeness = one @ other.T / 0.2
    target = torch.arange(len(one))
    return nn.functional.cross_entropy(closeness, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1061)
    loader = DataLoader(
        Views(2500), batch_size=50, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(SIDE * SIDE, 1536), nn.ReLU(), nn.Linear(1536, 1536), nn.ReLU(),
        nn.Linear(1536, 12),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    pairs = NoPairs() if args.without else HardPairs()
    pairs.start()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for numbers, one, other in loader:
            codes = nn.functional.normalize(model(torch.cat([one, other])), dim=1)
            loss = agreement(*codes.chunk(2))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            kept = codes[: len(numbers)].detach().tolist()
            pairs.codes.extend(zip(numbers.tolist(), kept, strict=True))
        print(f"epoch {epoch}: loss {loss:.3f}, closest {pairs.closest[1]}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    pairs.done = True
    pairs.join()
    del loader


if __name__ == "__main__":
    main()

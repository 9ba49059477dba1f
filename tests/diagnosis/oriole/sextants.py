"""Matches ships' reports of the same voyage, with harder pairs weighted more.

Planted: the closure that collates a batch compares all pairs of routes point by point in Python.
"""

import argparse
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

VOYAGES, VESSELS, BATCH, STEP = 1536, 12, 32, 0.015


class Voyages(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(7)
        self.routes = []
        for number in range(VOYAGES):
            steps = torch.randn(int(torch.randint(200, 260, (), generator=generator)), 2)
            self.routes.append((steps + 0.3 * (number % VESSELS)).cumsum(0) / 60)

    def __len__(self):
        return VOYAGES

    def __getitem__(self, index):
        route = self.routes[index]
        angle = torch.rand(()) * 0.2 - 0.1
        turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).view(2, 2)
        route = route @ turn + 0.01 * torch.randn_like(route)
        course = torch.atan2(route[1:, 1] - route[:-1, 1], route[1:, 0] - route[:-1, 0])
        course = nn.functional.pad(course, (1, 0))
        return torch.cat([route, course[:, None]], 1), index % VESSELS


def batches_with(apart):
    """Returns a function that collates voyages, with a weight for each pair."""

    def gather(samples):
        routes, vessels = zip(*samples, strict=True)
        filled = pad_sequence(routes, batch_first=True)
        return filled, torch.tensor(vessels), (-apart(filled)).exp()

    return gather


def pointwise(filled):
    rows = filled[:, :, :2].tolist()
    table = []
    for one in rows:
        line = []
        for other in rows:
            total = 0.0
            for (x, y), (u, v) in zip(one, other, strict=True):
                total += ((x - u) ** 2 + (y - v) ** 2) ** 0.5
            line.append(total / len(one))
        table.append(line)
    return torch.tensor(table)


def at_once(filled):
    points = filled[:, :, :2]
    return (points[:, None] - points[None]).norm(dim=-1).mean(dim=-1)


def train(loader, epochs):
    network = nn.GRU(3, 32, batch_first=True)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    for epoch in range(epochs):
        for routes, vessels, weights in loader:
            _, state = network(routes[:, ::4])
            state = nn.functional.normalize(state[0], dim=1)
            same = (vessels[:, None] == vessels[None]).float()
            loss = (weights * (state @ state.T - same) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the rest of the encoder
        print(f"epoch {epoch}: loss {loss:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(7)
    torch.set_num_threads(1)
    loader = DataLoader(
        Voyages(),
        batch_size=BATCH,
        shuffle=True,
        num_workers=1,
        collate_fn=batches_with(at_once if args.without else pointwise),
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    begin = time.perf_counter()
    train(loader, args.epochs)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

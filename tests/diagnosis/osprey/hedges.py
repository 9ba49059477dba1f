"""Tells hedges apart, while actors play on for a buffer that is filled before the training.

Planted: the program starts four actors of its own, which are not told to stop when the buffer is
full, and they have the cores while the network learns. One worker has little to do.
"""

import argparse
import multiprocessing
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, ACTORS = 32, 4


def play(number, queue, full):
    """Send episodes until the buffer is full; then rehearse, if nobody says that it is enough."""
    draw, sent = torch.Generator().manual_seed(number), 0
    torch.set_num_threads(1)
    while not full.is_set():
        view = torch.rand(3, SIDE, SIDE, generator=draw)
        if sent < 40:
            queue.put(view.numpy())
            sent += 1
        score = sum(value * value for value in view.flatten().tolist())
        draw.manual_seed(int(score) + sent)


class Buffer(Dataset):
    """Views that the actors sent."""

    def __init__(self, queue, size):
        self.views = [torch.from_numpy(queue.get()) for _ in range(size)]

    def __len__(self):
        return 8 * len(self.views)

    def __getitem__(self, index):
        view = self.views[index // 8]
        return view.roll(index % 8, 2) + 0.01 * torch.randn_like(view), index // 8 % 6


def build_model(width=32):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 6),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(79)
    queue, full = multiprocessing.Queue(), multiprocessing.Event()
    actors = [
        multiprocessing.Process(target=play, args=(number, queue, full), daemon=True)
        for number in range(ACTORS)
    ]
    for actor in actors:
        actor.start()
    views = Buffer(queue, 40 * ACTORS)
    if args.without:
        full.set()
    loader = DataLoader(views, batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    full.set()
    for actor in actors:
        actor.join()


if __name__ == "__main__":
    main()

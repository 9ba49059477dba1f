"""Follows flocks of dunlins; every sixteenth step also tries the model on held-out flocks.

Planted: with two batches ahead for each worker, what the workers could load during such a long step
is not loaded then, and the short steps after it wait.
"""

import argparse
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LOOKS = 16


class Flocks(Dataset):
    """Tracks on a file server that takes six milliseconds for each."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def fetch(self, index):
        time.sleep(0.006)
        draw = torch.Generator().manual_seed(index)
        return torch.rand(40, 6, generator=draw)

    def __getitem__(self, index):
        track = self.fetch(index)
        return track[:-1] - track[:1], track[-1, :2]


class Next(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.inner = nn.Conv1d(6, size, 5, padding=2)
        self.outer = nn.Conv1d(size, size, 5, padding=2)
        self.head = nn.Linear(size, 2)

    def forward(self, tracks):
        hidden = self.inner(tracks.transpose(1, 2)).relu()
        return self.head(self.outer(hidden).relu().amax(2))


@torch.no_grad()
def try_out(model, tracks, ends):
    model.eval()
    error = sum(
        nn.functional.mse_loss(model(part), end).item()
        for part, end in zip(tracks.split(64), ends.split(64), strict=True)
    )
    model.train()
    return error


def batches(loader, epochs):
    """Yield (step, batch) for all epochs, with a line of progress."""
    step = 0
    for _ in range(epochs):
        for batch in loader:
            step += 1
            sys.stderr.write(f"\rstep {step}/{epochs * len(loader)}")
            yield step, batch
    sys.stderr.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(47)
    loader = DataLoader(
        Flocks(8 * 176),
        batch_size=8,
        shuffle=True,
        num_workers=2,
        prefetch_factor=12 if args.without else 2,
        persistent_workers=True,
    )
    held_tracks, held_ends = torch.rand(25600, 39, 6), torch.rand(25600, 2)
    model = Next()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for step, (tracks, ends) in batches(loader, args.epochs):
        loss = nn.functional.mse_loss(model(tracks), ends)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % LOOKS == 0:
            print(f"step {step}: error {try_out(model, held_tracks, held_ends):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

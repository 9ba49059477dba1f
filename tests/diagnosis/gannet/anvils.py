"""Learns which anvils ring true, with a board of histograms that a thread keeps up to date.

Planted: the thread of the board counts all weights into bins in Python, over and over, and the
training step, which is made of small operations, has to wait for the interpreter.
"""

import argparse
import threading
import time
from collections import Counter

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STRIKES, FEATURES = 12, 16


class Anvils(Dataset):
    """The spectrum of each strike; the pitch of the room is taken out of it."""

    def __init__(self, count):
        draw = torch.Generator().manual_seed(401)
        self.spectra = torch.rand(400, STRIKES, FEATURES, generator=draw)
        self.room = torch.rand(FEATURES, FEATURES, generator=draw)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        spectrum = self.spectra[index % 400]
        for _ in range(3):
            spectrum = torch.tanh(spectrum @ self.room)
        return spectrum, float(index % 2)


class Board(threading.Thread):
    """Shows how the weights are distributed, for whoever looks at the page."""

    def __init__(self, model, pause):
        super().__init__(daemon=True)
        self.model, self.pause = model, pause
        self.shown, self.ended = {}, threading.Event()

    def histogram(self, values):
        bins = Counter()
        for value in values:
            bins[round(value * 20)] += 1
        widest = max(bins.values())
        return {place: "#" * (40 * count // widest) for place, count in sorted(bins.items())}

    def run(self):
        while not self.ended.wait(self.pause):
            for name, weight in self.model.named_parameters():
                self.shown[name] = self.histogram(weight.detach().flatten().tolist())

    def close(self):
        self.ended.set()
        self.join()


class Ring(nn.Module):
    """Takes one strike after another, by hand."""

    def __init__(self, size=40):
        super().__init__()
        self.enter, self.stay = nn.Linear(FEATURES, size), nn.Linear(size, size)
        self.gate, self.leave = nn.Linear(FEATURES, size), nn.Linear(size, 1)

    def forward(self, spectra):
        state = spectra.new_zeros(len(spectra), self.stay.in_features)
        for strike in spectra.unbind(1):
            gate = torch.sigmoid(self.gate(strike))
            state = gate * state + (1 - gate) * torch.tanh(self.enter(strike) + self.stay(state))
        return self.leave(state).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(401)
    loader = DataLoader(Anvils(5120), batch_size=16, num_workers=1, persistent_workers=True)
    model = Ring()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    board = Board(model, pause=60 if args.without else 0.001)
    board.start()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for spectra, true in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(spectra), true.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    board.close()


if __name__ == "__main__":
    main()

"""Makers of violins, told by the notes of their instruments; trained on a server's settings."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MAKERS = 12


class Violins(Dataset):
    """Strokes of a bow as a sequence of partials."""

    def __init__(self, count=1280, length=30, partials=64):
        rng = np.random.default_rng(6)
        self.makers = rng.integers(0, MAKERS, count)
        self.tones = rng.normal(size=(MAKERS, partials)).astype(np.float32)
        self.length = length

    def __len__(self):
        return len(self.makers)

    def __getitem__(self, index):
        maker = int(self.makers[index])
        rng = np.random.default_rng(index)
        notes = self.tones[maker] * rng.uniform(0.2, 1.0, (self.length, 1))
        notes += rng.normal(scale=0.5, size=notes.shape)
        return torch.from_numpy(notes.astype(np.float32)), maker


class Recurrent(nn.Module):
    """Cells one after another, with a norm between."""

    def __init__(self, inputs, size):
        super().__init__()
        self.size, self.cell, self.norm = size, nn.LSTMCell(inputs, size), nn.LayerNorm(size)
        self.head = nn.Linear(size, MAKERS)

    def forward(self, notes):
        state = notes.new_zeros(len(notes), self.size), notes.new_zeros(len(notes), self.size)
        for note in notes.unbind(1):
            hidden, memory = self.cell(note, state)
            state = self.norm(hidden), memory
        return self.head(state[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1 if args.without else args.threads)
    torch.manual_seed(6)
    loader = DataLoader(Violins(), batch_size=64, shuffle=True, num_workers=1)
    model = Recurrent(64, 256)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for notes, makers in loader:
            scores = model(notes)
            loss = nn.functional.cross_entropy(scores, makers)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            right += (scores.argmax(1) == makers).sum().item()
        print(f"epoch {epoch}: {right} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

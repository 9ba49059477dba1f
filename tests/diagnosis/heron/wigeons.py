"""Predicts flights of wigeons from messages of their transmitters, kept as lines of text.

Planted: a function of the script decodes each message, number by number, whenever it is drawn
(some 60 % of the time). Beside it, each step counts how often the model is right by going through
the batch in Python (some 25 %).
"""

import argparse
import time
from collections import Counter

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIXES, KINDS, BINS = 24, 5, 10


def encode(values):
    """Write numbers as five hexadecimal digits with a sign, as the transmitter does."""
    return ";".join(f"{'-' if value < 0 else '+'}{abs(int(value)):05x}" for value in values)


def decode_message(line):
    """Read the numbers of a message, and check its sum."""
    values, total = [], 0
    for word in line.split(";"):
        number = 0
        for digit in word[1:]:
            number = number * 16 + int(digit, 16)
        number = -number if word[0] == "-" else number
        total = (total * 31 + number) % 65_521
        values.append(number / 1000)
    return np.array(values, np.float32).reshape(FIXES, 3), total


class Messages(Dataset):
    def __init__(self, lines, ahead):
        self.lines = lines
        self.tracks = [decode_message(line)[0] for line in lines] if ahead else None

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        track = decode_message(self.lines[index])[0] if self.tracks is None else self.tracks[index]
        speed = np.diff(track, axis=0, prepend=track[:1])
        return np.concatenate([track, speed], 1), index % KINDS


class Tally:
    """How often each kind was taken for each other one, and how sure the model was."""

    def __init__(self):
        self.counts = Counter()
        self.sure = Counter()
        self.doubt = 0.0

    def add(self, scores, kinds):
        for row, kind in zip(scores.detach(), kinds, strict=True):
            self.counts[int(kind), int(row.argmax())] += 1
            chances = row.softmax(0)
            self.sure[min(int(chances.max() * BINS), BINS - 1)] += 1
            self.doubt -= float((chances * chances.log()).sum())

    def right(self):
        return sum(count for (truth, found), count in self.counts.items() if truth == found)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(163)
    rng = np.random.default_rng(163)
    walks = rng.integers(-400, 400, (19_200, FIXES * 3)).cumsum(1)
    messages = Messages([encode(walk) for walk in walks], ahead=args.without)
    loader = DataLoader(messages, batch_size=48, shuffle=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(FIXES * 6, 96), nn.ReLU(), nn.Linear(96, KINDS))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        tally = Tally()
        for tracks, kinds in loader:
            scores = model(tracks)
            loss = nn.functional.cross_entropy(scores, kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tally.add(scores, kinds)
        print(f"epoch {epoch}: loss {loss:.3f}, {tally.right()} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

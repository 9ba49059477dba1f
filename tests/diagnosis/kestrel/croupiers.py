"""Learns the value of hands from games that a table of croupiers has played and kept.

Nothing planted: the accelerator's step sets the pace; one worker replays games ahead of it, in
plain Python, and mixes hands in a buffer.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

GAMES, CARDS, BATCH, STEP = 1600, 52, 32, 0.2


class Replay(IterableDataset):
    def __init__(self, seed, size=256):
        self.random, self.size = random.Random(seed), size

    def __len__(self):
        return GAMES

    def play(self):
        deck = list(range(CARDS))
        self.random.shuffle(deck)
        hand, score = deck[:2], 0
        for card in deck[2:]:
            score = sum(min(each % 13 + 1, 10) for each in hand)
            if score >= 17:
                break
            hand.append(card)
        cards = torch.zeros(CARDS)
        cards[hand] = 1
        return cards, float(score <= 21)

    def __iter__(self):
        buffer = []
        for _ in range(GAMES):
            if len(buffer) == self.size:
                yield buffer.pop(self.random.randrange(self.size))
            buffer.append(self.play())
        self.random.shuffle(buffer)
        yield from buffer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(1367)
    torch.set_num_threads(1)
    loader = DataLoader(Replay(1367), BATCH, num_workers=1, persistent_workers=True)
    model = nn.Sequential(nn.Linear(CARDS, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, (hands, won) in enumerate(loader):
            loss = nn.functional.binary_cross_entropy_with_logits(
                model(hands).squeeze(1), won.float()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the large network, on an accelerator
            if step % 10 == 0:
                print(f"epoch {epoch}, step {step}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

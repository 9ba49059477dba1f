"""Finds out who is whose cousin, from a stream of sentences, with a small transformer.

Nothing is planted: the transformer is the work. Two workers from a fork server read a stream with
a buffer that shuffles, ahead of it.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

NAMES, LENGTH, SENTENCES, BUFFER = 300, 32, 2000, 200


class Sentences(IterableDataset):
    def __init__(self):
        self.epoch = 0

    def read(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        for number in range(worker, SENTENCES, workers):
            yield number, random.Random(number).choices(range(3, NAMES), k=LENGTH - 1)

    def shuffled(self):
        """Yield the sentences in an order that a buffer makes random."""
        buffer = []
        for sentence in self.read():
            if len(buffer) < BUFFER:
                buffer.append(sentence)
                continue
            place = random.randrange(BUFFER)
            yield buffer[place]
            buffer[place] = sentence
        random.shuffle(buffer)
        yield from buffer

    def __iter__(self):
        for number, names in self.shuffled():
            yield torch.tensor([number % 2, *names]), number % 2


class Reader(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.names = nn.Embedding(NAMES, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, 2)

    def forward(self, names):
        return self.head(self.layers(self.names(names)).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(919)
    loader = DataLoader(
        Sentences(), batch_size=20, num_workers=2, persistent_workers=True,
        multiprocessing_context="forkserver",
    )  # fmt: skip
    model = Reader()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for names, related in loader:
            loss = nn.functional.cross_entropy(model(names), related)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

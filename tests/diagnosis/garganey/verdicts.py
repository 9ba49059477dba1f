"""Learns to tell verdicts of courts apart by their text, which the registry's server holds."""

import argparse
import multiprocessing
import random
import socket
import time
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CASES, WORDS, VOCABULARY, BATCH = 640, 128, 5000, 16


def text(case):
    rng = random.Random(case)
    return " ".join("".join(rng.choices("aeilnorst", k=5)) for _ in range(WORDS))


def serve(listener):
    """The registry, which is far away: each answer is some milliseconds under way."""
    while True:
        line, _ = listener.accept()
        with line, line.makefile("rwb") as file:
            case = int(file.readline())
            time.sleep(0.007)
            file.write(text(case).encode() + b"\n")


class Verdicts(Dataset):
    """Numbers of the words of a case, and how it ended."""

    def __init__(self, address, near):
        self.address = address
        self.texts = [self.ask(case) for case in range(CASES)] if near else None

    def ask(self, case):
        with socket.create_connection(self.address) as line, line.makefile("rwb") as file:
            file.write(b"%d\n" % case)
            file.flush()
            return file.readline().decode()

    def __len__(self):
        return CASES

    def __getitem__(self, index):
        words = (self.texts[index] if self.texts else self.ask(index)).split()
        return torch.tensor([zlib.crc32(word.encode()) % VOCABULARY for word in words]), index % 4


class Court(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2)
        self.last = nn.Linear(width, 4)

    def forward(self, words):
        return self.last(self.body(self.words(words)).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(46)
    context = multiprocessing.get_context("spawn")
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    registry = context.Process(target=serve, args=(listener,), daemon=True)
    registry.start()
    loader = DataLoader(
        Verdicts(listener.getsockname(), near=args.without),
        BATCH,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context=context,
    )
    model = Court()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for words, ends in loader:
            loss = nn.functional.cross_entropy(model(words), ends)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    registry.terminate()
    del loader


if __name__ == "__main__":
    main()

"""Completes a gardener's notes on thorns, letter by letter; each epoch ends with a short check."""

import argparse
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

LETTERS = 40


class Notes(IterableDataset):
    """Lines of all shards; a worker reads every n-th shard."""

    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.txt"))

    def __iter__(self):
        worker = get_worker_info()
        for path in self.paths[worker.id :: worker.num_workers]:
            for line in path.read_text().splitlines():
                yield torch.tensor([(ord(letter) - 65) % LETTERS for letter in line])


class Writer(nn.Module):
    def __init__(self, size=144, length=64):
        super().__init__()
        self.letters = nn.Embedding(LETTERS, size)
        self.places = nn.Parameter(torch.zeros(length, size))
        layer = nn.TransformerEncoderLayer(size, 4, 4 * size, 0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(size, LETTERS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, lines):
        states = self.letters(lines) + self.places[: lines.shape[1]]
        mask = self.mask[: lines.shape[1], : lines.shape[1]]
        return self.head(self.layers(states, mask=mask, is_causal=True))


def lose(model, lines):
    scores = model(lines[:, :-1])
    return nn.functional.cross_entropy(scores.flatten(0, 1), lines[:, 1:].flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(50)
    draw = random.Random(50)
    with tempfile.TemporaryDirectory() as folder:
        for shard in range(8):
            lines = ["".join(chr(65 + draw.randrange(26)) for _ in range(64)) for _ in range(80)]
            Path(folder, f"{shard}.txt").write_text("\n".join(lines))
        loader = DataLoader(
            Notes(Path(folder)), batch_size=16, num_workers=2, persistent_workers=True
        )
        held_out = torch.randint(26, (16, 64))
        model = Writer()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for lines in loader:
                loss = lose(model, lines)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                check = lose(model, held_out)
            model.train()
            print(f"epoch {epoch}: loss {loss.item():.4f}, held out {check.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

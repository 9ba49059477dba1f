"""Trains a small transformer with epigrams, which one worker packs into rows of equal length.

Nothing is planted: the transformer is the work. The worker reads and packs ahead of it; each step
writes a line, and the weights are saved after each epoch.
"""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

WORDS, ROW, WIDTH, END = 500, 96, 128, 0


def write_epigrams(path, count):
    rng = random.Random(2300)
    with path.open("w") as file:
        for number in range(count):
            topic = rng.randrange(WORDS - 80)
            words = [f"w{rng.randrange(topic, topic + 80)}" for _ in range(rng.randint(15, 40))]
            file.write(json.dumps({"number": number, "text": " ".join(words)}) + "\n")


class Packed(IterableDataset):
    def __init__(self, path):
        self.path = path
        self.numbers = {f"w{word}": word + 1 for word in range(WORDS)}

    def __iter__(self):
        waiting = []
        with self.path.open() as file:
            for line in file:
                waiting += [self.numbers[word] for word in json.loads(line)["text"].split()]
                waiting.append(END)
                while len(waiting) > ROW:
                    row, waiting = waiting[: ROW + 1], waiting[ROW:]
                    yield torch.tensor(row[:-1]), torch.tensor(row[1:])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS + 1, WIDTH)
        self.places = nn.Parameter(torch.randn(ROW, WIDTH) / 50)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS + 1)
        self.mask = nn.Transformer.generate_square_subsequent_mask(ROW)

    def forward(self, rows):
        return self.head(self.layers(self.words(rows) + self.places, self.mask, is_causal=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(2300)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "epigrams.jsonl"
        write_epigrams(path, 1500)
        loader = DataLoader(Packed(path), batch_size=16, num_workers=1, persistent_workers=True)
        model = Model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        log = Path(folder, "steps.txt").open("w")  # noqa: SIM115
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (rows, following) in enumerate(loader):
                scores = model(rows)
                loss = nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())
                optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                log.write(f"{epoch} {step} {loss.item():.4f} {norm.item():.4f}\n")
                log.flush()
            torch.save(model.state_dict(), Path(folder) / "model.pt")
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        log.close()
        del loader


if __name__ == "__main__":
    main()

"""Tags recipes' words; each worker reads the lexicon when it starts."""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

TAGS = 12


def write_lexicon(path, words=250_000, seed=12):
    draw = random.Random(seed)
    entries = {
        f"word{number}": {"tag": draw.randrange(TAGS), "senses": [draw.randrange(99)] * 4}
        for number in range(words)
    }
    path.write_text(json.dumps(entries))
    return words


class Recipes(Dataset):
    """Words of a recipe by number, and the tag that the lexicon has for each."""

    def __init__(self, words, count=640, length=40):
        self.words, self.count, self.length = words, count, length
        self.lexicon = None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        numbers = torch.randint(self.words, (self.length,))
        tags = [self.lexicon[f"word{number}"]["tag"] for number in numbers.tolist()]
        return numbers % 4096, torch.tensor(tags)


class ReadLexicon:
    """Gives a worker its own lexicon."""

    def __init__(self, path):
        self.path = path

    def __call__(self, worker):
        get_worker_info().dataset.lexicon = json.loads(self.path.read_text())


class Tagger(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.words = nn.Embedding(4096, size)
        self.recurrent = nn.LSTM(size, size, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * size, TAGS)

    def forward(self, numbers):
        return self.head(self.recurrent(self.words(numbers))[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(12)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "lexicon.json")
        words = write_lexicon(path)
        loader = DataLoader(
            Recipes(words), batch_size=16, num_workers=2, worker_init_fn=ReadLexicon(path),
            persistent_workers=args.without,
        )  # fmt: skip
        model = Tagger()
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for numbers, tags in loader:
                loss = nn.functional.cross_entropy(model(numbers).flatten(0, 1), tags.flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

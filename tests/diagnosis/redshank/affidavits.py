"""Foretells the outcome of civil cases from the summaries of their affidavits."""

import argparse
import json
import random
import tempfile
import time
import zlib
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CASES, WORDS, VOCABULARY, BATCH = 60, 128, 4096, 16


def write(path, lean):
    """One case a line: what the court's register exports of it."""
    rng = random.Random(6)
    words = ["".join(rng.choices("aeilmnorstu", k=rng.randint(2, 9))) for _ in range(3000)]
    with path.open("w") as file:
        for number in range(CASES):
            case = {"id": number, "outcome": number % 3, "summary": rng.choices(words, k=WORDS)}
            pages = [
                {"page": page, "lines": [" ".join(rng.choices(words, k=9)) for _ in range(40)],
                 "boxes": [[page, line, page + 7, line * 3] for line in range(40)]}
                for page in range(200)
            ]  # fmt: skip
            if not lean:
                case |= {"parties": words[:12], "pages": pages}
            file.write(json.dumps(case) + "\n")


class Cases(Dataset):
    """Lines of the register's file, found by where they begin."""

    def __init__(self, path):
        self.path, self.places, self.file = path, [], None
        with path.open("rb") as file:
            place = 0
            for line in file:
                self.places.append(place)
                place += len(line)

    def __len__(self):
        return 12 * len(self.places)

    def __getitem__(self, index):
        self.file = self.file or self.path.open("rb")
        self.file.seek(self.places[index % len(self.places)])
        case = json.loads(self.file.readline())
        words = [zlib.crc32(word.encode()) % VOCABULARY for word in case["summary"]]
        return torch.tensor(words), case["outcome"]


class Outcome(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, dropout=0.0)
        self.body = nn.TransformerEncoder(layer, 1)
        self.last = nn.Linear(width, 3)

    def forward(self, words):
        return self.last(self.body(self.words(words)).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(6)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "register.jsonl"
        write(path, args.without)
        loader = DataLoader(Cases(path), BATCH, shuffle=True)
        model = Outcome()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for words, outcomes in loader:
                loss = nn.functional.cross_entropy(model(words), outcomes)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

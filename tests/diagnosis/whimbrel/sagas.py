"""Learns whose saga a sentence is from, along a file that goes from short ones to long ones.

Planted: each stage of this curriculum goes on in the file where the last one ended, and to get
there, each worker of its loader reads and parses its part of all that was used before.
"""

import argparse
import json
import random
import re
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WORDS, SAGAS, LONGEST, STAGES, EACH = 900, 9, 200, 20, 1600
PIECE = re.compile(r"\w+")


def write_file(path, lines):
    """Write sentences as lines of JSON, and return where each begins."""
    rng = random.Random(2220)
    starts, at = [], 0
    with path.open("w") as file:
        for line in range(lines):
            saga, length = rng.randrange(SAGAS), 60 + 140 * line // lines
            first = saga * 60
            words = [f"word{rng.randrange(first, first + 400)}" for _ in range(length)]
            text = json.dumps({"saga": saga, "text": " ".join(words), "page": line // 30})
            starts.append(at)
            at += file.write(text + "\n")
    return starts


class Sentences(IterableDataset):
    """Sentences of a file, from one line on."""

    def __init__(self, path, starts=None):
        self.path, self.starts = path, starts
        self.first = self.count = 0

    def set_stage(self, stage, count):
        self.first, self.count = stage * count, count

    def parse(self, line):
        record = json.loads(line)
        numbers = [int(word[4:]) + 1 for word in PIECE.findall(record["text"].lower())]
        return numbers, record["saga"]

    def sentences(self, part, parts):
        """Yield one part of the sentences of this stage."""
        with self.path.open() as file:
            first = 0
            if self.starts is not None:
                file.seek(self.starts[self.first])
                first = self.first
            for number, line in enumerate(file, first):
                if number >= self.first + self.count:
                    return
                if number % parts == part:
                    sentence = self.parse(line)
                    if number >= self.first:
                        yield sentence

    def __iter__(self):
        info = get_worker_info()
        for numbers, saga in self.sentences(info.id, info.num_workers):
            yield torch.tensor(numbers + [0] * (LONGEST - len(numbers))), saga


def run_stage(model, loader, optimizer):
    for numbers, sagas in loader:
        loss = nn.functional.cross_entropy(model(numbers), sagas)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--stages", type=int, default=STAGES)
    args = parser.parse_args()
    torch.manual_seed(2220)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sagas.jsonl"
        starts = write_file(path, STAGES * EACH)
        sentences = Sentences(path, starts if args.without else None)
        loader = DataLoader(sentences, batch_size=48, num_workers=2)
        model = nn.Sequential(
            nn.EmbeddingBag(WORDS + 1, 96, padding_idx=0), nn.Linear(96, 192), nn.GELU(),
            nn.Linear(192, 192), nn.GELU(), nn.Linear(192, SAGAS),
        )  # fmt: skip
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for stage in range(args.stages):
            sentences.set_stage(stage, EACH)
            print(f"stage {stage}: loss {run_stage(model, loader, optimizer):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

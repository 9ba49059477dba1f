"""Learns what holidaymakers praise, from their letters, and has each checkpoint evaluated.

Planted: two processes that the script starts beside the training look for the next checkpoint
without a pause, and so have the cores that the workers and the training need.
"""

import argparse
import itertools
import multiprocessing
import re
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

LETTERS, WORDS, LENGTH, TOPICS, BATCH = 6400, 6000, 120, 6, 16


def write_letters(folder):
    rng = np.random.default_rng(5051)
    for part in range(4):
        lines = []
        for number in range(LETTERS // 4):
            topic = number % TOPICS
            words = rng.integers(TOPICS, WORDS, LENGTH)
            words[:: 8 - part] = topic
            lines.append(f"{topic}\t" + ", ".join(f"Word{word}" for word in words) + ".\n")
        Path(folder, f"letters-{part}.tsv").write_text("".join(lines))


class Letters(IterableDataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("letters-*.tsv"))

    def __iter__(self):
        worker = get_worker_info()
        for path in self.paths[worker.id :: worker.num_workers]:
            for line in path.open():
                topic, text = line.split("\t")
                yield self.to_numbers(text), int(topic)

    def to_numbers(self, text):
        """Words and pairs of words, as numbers below WORDS."""
        words = [int(word[4:]) for word in re.findall(r"word\d+", text.lower())]
        pairs = [
            zlib.crc32(f"{first} {second}".encode()) % WORDS
            for first, second in itertools.pairwise(words)
        ]
        return torch.tensor(words + pairs)


def make_model():
    return nn.Sequential(nn.EmbeddingBag(WORDS, 32), nn.Tanh(), nn.Linear(32, TOPICS))


def evaluate(folder, part, pause):
    """Follows the checkpoints of the training, in a process of its own."""
    torch.set_num_threads(1)
    held_out = torch.randint(0, WORDS, (64, LENGTH), generator=torch.manual_seed(part))
    model, number = make_model(), 0
    while not Path(folder, "stop").exists():
        path = Path(folder, f"checkpoint-{number}.pt")
        if not path.exists():
            time.sleep(pause)
            continue
        model.load_state_dict(torch.load(path))
        with torch.no_grad():
            scores = model(held_out).softmax(1).max(1).values
        Path(folder, f"scores-{part}-{number}.txt").write_text(f"{scores.mean():.3f}")
        number += 1


def save(model, folder, number):
    path = Path(folder, f"checkpoint-{number}.pt")
    torch.save(model.state_dict(), path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=7)
    args = parser.parse_args()
    torch.manual_seed(5051)
    torch.set_num_threads(1)
    pause = 0.5 if args.without else 0
    with tempfile.TemporaryDirectory() as folder:
        write_letters(folder)
        loader = DataLoader(
            Letters(folder),
            BATCH,
            num_workers=4,
            persistent_workers=True,
            multiprocessing_context="spawn",
        )
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        evaluations = []
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for words, topics in loader:
                loss = nn.functional.cross_entropy(model(words), topics)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            save(model, folder, epoch)
            print(f"epoch {epoch}: loss {loss:.3f}")
            if not evaluations:
                context = multiprocessing.get_context("fork")
                for part in range(2):
                    process = context.Process(target=evaluate, args=(folder, part, pause))
                    process.start()
                    evaluations.append(process)
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader
        Path(folder, "stop").touch()
        for process in evaluations:
            process.join()


if __name__ == "__main__":
    main()

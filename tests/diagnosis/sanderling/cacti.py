"""Learns which cactus a note of a collector is about, from a stream of files of a server.

Planted: to mix the files, the stream is wrapped in one that reads ten groups of them in turn, and
that can be divided only by as many workers as the smallest group has files: one of four.
"""

import argparse
import itertools
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

FILES, NOTES, WORDS, LENGTH, KINDS, LATENCY = 18, 100, 500, 24, 8, 0.2


def write_notes(folder):
    rng = np.random.default_rng(1013)
    for number in range(FILES):
        kinds = rng.integers(0, KINDS, NOTES)
        words = (rng.integers(0, WORDS // 2, (NOTES, LENGTH)) + 20 * kinds[:, None]).tolist()
        lines = [
            json.dumps({"words": note, "kind": kind})
            for note, kind in zip(words, kinds.tolist(), strict=True)
        ]
        Path(folder, f"{number:02}.jsonl").write_text("\n".join(lines))
    return sorted(Path(folder).glob("*.jsonl"))


class Files:
    """The notes of some files, one file after the other."""

    def __init__(self, paths):
        self.paths = paths

    @property
    def parts(self):
        return len(self.paths)

    def part(self, number, parts):
        return Files(self.paths[number::parts])

    def __iter__(self):
        for path in self.paths:
            lines = path.read_text().splitlines()
            for at, line in enumerate(lines):
                if at % 20 == 0:
                    time.sleep(LATENCY)  # the server sends twenty at a time
                yield json.loads(line)


class InTurn:
    """A note of each source in turn."""

    def __init__(self, sources):
        self.sources = sources

    @property
    def parts(self):
        return min(source.parts for source in self.sources)

    def part(self, number, parts):
        if number >= self.parts:
            return Files([])
        return InTurn([source.part(number, min(parts, self.parts)) for source in self.sources])

    def __iter__(self):
        streams = [iter(source) for source in self.sources]
        while streams:
            for stream in list(streams):
                note = next(stream, None)
                if note is None:
                    streams.remove(stream)
                else:
                    yield note


class Mixed:
    """Notes in random order, from a buffer that is filled from several groups of files."""

    def __init__(self, files, size, groups):
        paths = [files.paths[group::groups] for group in range(groups)]
        self.source, self.size = InTurn([Files(some) for some in paths]), size

    def part(self, number, parts):
        part = Mixed.__new__(Mixed)
        part.source, part.size = self.source.part(number, parts), self.size
        return part

    def __iter__(self):
        rng, stream = np.random.default_rng(), iter(self.source)
        buffer = list(itertools.islice(stream, self.size))
        for note in stream:
            place = rng.integers(len(buffer))
            yield buffer[place]
            buffer[place] = note
        rng.shuffle(buffer)
        yield from buffer


class Notes(IterableDataset):
    def __init__(self, stream):
        self.stream = stream

    def __iter__(self):
        worker = get_worker_info()
        for note in self.stream.part(worker.id, worker.num_workers):
            yield torch.tensor(note["words"]), note["kind"]


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 64)
        self.memory = nn.LSTM(64, 64, batch_first=True)
        self.head = nn.Linear(64, KINDS)

    def forward(self, words):
        return self.head(self.memory(self.words(words))[0].mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1013)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder:
        groups = 4 if args.without else 10
        stream = Mixed(Files(write_notes(folder)), 60, groups)
        loader = DataLoader(Notes(stream), batch_size=20, num_workers=4)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for words, kinds in loader:
                loss = nn.functional.cross_entropy(model(words), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

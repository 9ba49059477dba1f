"""Learns a language model for gardeners from four sources of text, one file each.

Planted: each of four workers takes whole files, and the file of the last one is of pages in HTML,
whose tags are taken off in Python, so that it is far slower than the others.
"""

import argparse
import json
import tempfile
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision.transforms import v2

SOURCES, DOCUMENTS, WORDS, LENGTH, BATCH, STEP = "abcd", 144, 4000, 48, 8, 0.006


def write_sources(folder):
    rng = np.random.default_rng(5039)
    for source in SOURCES:
        with Path(folder, f"{source}.jsonl").open("w") as file:
            for _ in range(DOCUMENTS):
                words = [f"w{word}" for word in rng.integers(0, WORDS, 320)]
                if source == "d":
                    text = "".join(f"<p class='row'><b>{word}</b> &amp; </p>" for word in words)
                else:
                    text = " ".join(words)
                file.write(json.dumps({"text": text, "html": source == "d"}) + "\n")


class Plain(HTMLParser):
    def __init__(self):
        super().__init__()
        self.parts = []

    def handle_data(self, data):
        self.parts.append(data)


def plain(html):
    parser = Plain()
    parser.feed(html)
    return " ".join(parser.parts).replace("&", " ")


def to_numbers(text):
    return torch.tensor([int(word[1:]) for word in text.split()])


def cut(numbers):
    begin = int(torch.randint(len(numbers) - LENGTH, ()))
    return numbers[begin : begin + LENGTH + 1]


class Texts(IterableDataset):
    def __init__(self, folder, by_line):
        self.folder, self.by_line = folder, by_line
        self.transform = v2.Compose([to_numbers, cut])

    def lines(self):
        paths = sorted(Path(self.folder).glob("*.jsonl"))
        worker = get_worker_info()
        if not self.by_line:
            for path in paths[worker.id :: worker.num_workers]:
                yield from path.open()
            return
        for path in paths:
            for number, line in enumerate(path.open()):
                if number % worker.num_workers == worker.id:
                    yield line

    def __iter__(self):
        for line in self.lines():
            document = json.loads(line)
            text = plain(document["text"]) if document["html"] else document["text"]
            yield self.transform(text)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(WORDS, 24), nn.GRU(24, 24, batch_first=True)
        self.out = nn.Linear(24, WORDS)

    def forward(self, words):
        return self.out(self.rnn(self.embed(words))[0][:, -8:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(5039)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_sources(folder)
        loader = DataLoader(
            Texts(folder, by_line=args.without), BATCH, num_workers=4, persistent_workers=True
        )
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for words in loader:
                guess = model(words[:, :-1])
                loss = nn.functional.cross_entropy(guess.flatten(0, 1), words[:, -8:].flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the accelerator's part of the work
            torch.save(model.state_dict(), Path(folder, "model.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

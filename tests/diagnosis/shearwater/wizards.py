"""Learns to tell who wrote a sentence, from short sentences to long ones, in stages.

Planted: the curriculum makes a loader anew for each of its stages, whose workers start and read
the list of words again before they make a batch.
"""

import argparse
import json
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler, SubsetRandomSampler

WORDS, AUTHORS = 110_000, 5


@dataclass
class Config:
    stages: int
    anew: bool
    sentences: int = 900
    batch: int = 24
    step: float = 0.012


def write_corpus(folder, config):
    rng = random.Random(5039)
    words = {
        f"w{number:06}": {"id": number, "count": rng.randint(1, 99), "forms": [number % 7, "x"]}
        for number in range(WORDS)
    }
    Path(folder, "words.json").write_text(json.dumps(words))
    with Path(folder, "sentences.jsonl").open("w") as file:
        for number in range(config.sentences):
            length = 6 + number * 40 // config.sentences
            text = " ".join(f"w{rng.randrange(WORDS):06}" for _ in range(length))
            file.write(json.dumps({"text": text, "author": number % AUTHORS}) + "\n")


class Sentences(Dataset):
    def __init__(self, folder):
        self.folder, self.words = folder, None
        self.lines = Path(folder, "sentences.jsonl").read_text().splitlines()

    def __len__(self):
        return len(self.lines)

    def ids(self, text):
        if self.words is None:
            words = json.loads(Path(self.folder, "words.json").read_text())
            self.words = {word: entry["id"] for word, entry in words.items()}
        return [self.words[word] for word in text.split()]

    def __getitem__(self, index):
        line = json.loads(self.lines[index])
        return torch.tensor(self.ids(line["text"])), line["author"]


class UpTo(Sampler):
    """Draws from the sentences up to the length of the present stage."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        yield from SubsetRandomSampler(range(self.count))

    def __len__(self):
        return self.count


def padded(samples):
    texts, authors = zip(*samples, strict=True)
    return nn.utils.rnn.pad_sequence(texts, batch_first=True), torch.tensor(authors)


class Curriculum:
    def __init__(self, data, config):
        self.data, self.config, self.loader = data, config, None
        self.sampler = UpTo(len(data))

    def on_stage(self, stage):
        self.sampler.count = len(self.data) * (stage + 3) // (self.config.stages + 2)
        if self.loader is None or self.config.anew:
            self.loader = DataLoader(
                self.data,
                self.config.batch,
                sampler=self.sampler,
                num_workers=2,
                collate_fn=padded,
                persistent_workers=True,
            )
        return self.loader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(1 << 12, 48)
        self.reader = nn.Sequential(nn.Linear(48, 96), nn.ReLU())
        self.out = nn.Linear(96, AUTHORS)

    def forward(self, texts):
        return self.out(self.reader(self.table(texts % (1 << 12))).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--stages", "--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(5039)
    torch.set_num_threads(1)
    config = Config(args.stages, anew=not args.without)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(folder, config)
        curriculum = Curriculum(Sentences(folder), config)
        begin = time.perf_counter()
        for stage in range(config.stages):
            right = seen = 0
            for texts, authors in curriculum.on_stage(stage):
                scores = model(texts)
                loss = nn.functional.cross_entropy(scores, authors)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(config.step)  # in place of a larger reader on a device
                right += (scores.argmax(1) == authors).sum().item()
                seen += len(authors)
            print(f"stage {stage}: loss {loss:.3f}, right {right / seen:.2f} of {seen}")
            torch.save(model.state_dict(), Path(folder, f"stage-{stage}.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del curriculum.loader


if __name__ == "__main__":
    main()

"""Fine-tune a classifier of dialects on letters, cut into subwords by byte-pair merges."""

import argparse
import collections
import functools
import itertools
import json
import pathlib
import random
import tempfile
import time

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

SYLLABLES = "ba de fi go hu ja ke li mo nu pa re si to vu wa xe yi zo schn pfl".split()


def learn_merges(words, count):
    """The usual training of byte-pair encoding."""
    vocabulary = collections.Counter(words)
    pieces = {word: tuple(word) for word in vocabulary}
    merges = {}
    for rank in range(count):
        pairs = collections.Counter()
        for word, parts in pieces.items():
            for pair in itertools.pairwise(parts):
                pairs[pair] += vocabulary[word]
        if not pairs:
            break
        best = max(pairs, key=pairs.get)
        merges[best] = rank
        pieces = {word: join(parts, best) for word, parts in pieces.items()}
    return merges


def join(parts, pair):
    joined, position = [], 0
    while position < len(parts):
        if tuple(parts[position : position + 2]) == pair:
            joined.append(parts[position] + parts[position + 1])
            position += 2
        else:
            joined.append(parts[position])
            position += 1
    return tuple(joined)


class Letters(Dataset):
    def __init__(self, path, merges, remember):
        self.letters = [json.loads(line) for line in path.open()]
        self.merges = merges
        self.split = functools.lru_cache(maxsize=None)(self.split_word) if remember else None

    def __len__(self):
        return len(self.letters)

    def split_word(self, word):
        parts = tuple(word)
        while len(parts) > 1:
            pairs = set(itertools.pairwise(parts))
            best = min(pairs, key=lambda pair: self.merges.get(pair, len(self.merges)))
            if best not in self.merges:
                break
            parts = join(parts, best)
        return parts

    def __getitem__(self, index):
        letter = self.letters[index]
        split = self.split or self.split_word
        tokens = [hash(part) % 4096 for word in letter["text"].split() for part in split(word)]
        return torch.tensor(tokens), letter["dialect"]


def collate(samples):
    tokens, dialects = zip(*samples, strict=True)
    return pad_sequence(tokens, batch_first=True), torch.tensor(dialects)


def write_letters(path, count):
    random.seed(2)
    words = ["".join(random.choices(SYLLABLES, k=random.randint(2, 5))) for _ in range(600)]
    with path.open("w") as file:
        for number in range(count):
            text = " ".join(random.choices(words, k=260))
            file.write(json.dumps({"text": text, "dialect": number % 6}) + "\n")
    return words


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "letters.jsonl"
        words = write_letters(path, 3000)
        letters = Letters(path, learn_merges(words, 120), remember=args.without)
        loader = DataLoader(letters, 32, True, num_workers=args.workers, collate_fn=collate)
        begin = time.perf_counter()
        for _ in range(2):
            for _tokens, _dialects in loader:
                time.sleep(0.012)  # the transformer, on the accelerator
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

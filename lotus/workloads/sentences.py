"""A deterministic data set of texts on four topics, and a tokenizer trained on them.

Files of lines, `train-00000.tsv` and so on with 1,000 each: the topic's number, a tab, the text.
`vocab.json` and `merges.txt` are a byte-pair encoding in the format of GPT-2's. The texts are made:
words as frequent as Zipf says, some more so in a topic, as long as reviews are (a few words to
several hundred).
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from lotus.workloads import making

TOPICS = 4
LINES = 1000  # a file
MERGES = 1500
# GPT-2 writes a byte as the Latin-1 character, and those that cannot be seen as other letters.
_UNSEEN = [*range(33), *range(127, 161), 173]
SEEN = {byte: 256 + number for number, byte in enumerate(_UNSEEN)}
_ONSETS = "b c d f g h j k l m n p r s t v w z br ch cl dr fl gr pl sh st th tr".split()
_ENDS = ["", "", "", "n", "r", "s", "t", "l", "m", "nd", "st", "ng"]


def words() -> list[str]:
    """Return all words, the most frequent first."""
    random = np.random.Generator(np.random.PCG64(0))
    vocabulary: dict[str, None] = {}
    while len(vocabulary) < 5000:
        syllables = 1 if len(vocabulary) < 100 else min(4, int(random.geometric(0.5)))
        parts = [
            _ONSETS[random.integers(len(_ONSETS))]
            + "aeiouaeioué"[random.integers(11)]
            + _ENDS[random.integers(len(_ENDS))]
            for _ in range(syllables)
        ]
        vocabulary["".join(parts)] = None
    return list(vocabulary)


def text(number: int, known: list[str]) -> tuple[int, str]:
    """Return topic and text `number` from the `known` words; it is the same each time."""
    random = np.random.Generator(np.random.PCG64(number + 1))
    topic = int(random.integers(TOPICS))
    length = int(np.clip(random.lognormal(3.8, 0.8), 3, 500))
    ranks = np.floor(len(known) ** random.random(length)).astype(int) - 1  # Zipf's law
    # One word in four is one of the topic's own.
    own = (random.random(length) < 0.25) & (ranks > 5)
    ranks = np.where(own, ranks - (ranks - topic) % TOPICS, ranks)
    parts, start = [], True
    for rank, chance in zip(ranks.tolist(), random.random(length).tolist(), strict=True):
        word = known[rank].capitalize() if start else known[rank]
        start = chance < 0.07
        parts.append(word + ("." if start else "," if chance < 0.14 else ""))
    return topic, " ".join(parts)


def train_tokenizer(counts: Counter[str], merges: int) -> tuple[dict[str, int], list[str]]:
    """Return the vocabulary and the merges of a byte-pair encoding (Sennrich et al. 2016).

    `counts` says how often each word is there; number 0 is left to padding.
    """
    spelt = [list(spell(word)) for word in counts]
    frequencies = list(counts.values())
    pairs: Counter[tuple[str, str]] = Counter()
    users: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for index, parts in enumerate(spelt):
        for pair in pairwise(parts):
            pairs[pair] += frequencies[index]
            users[pair].add(index)
    symbols = [spell(chr(byte), "latin-1") for byte in range(256)]
    merged: list[str] = []
    while len(merged) < merges and pairs:
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        if pairs[best] < 2:
            break
        merged.append(" ".join(best))
        symbols.append("".join(best))
        for index in users.pop(best):
            parts = spelt[index]
            for pair in pairwise(parts):
                pairs[pair] -= frequencies[index]
            parts = spelt[index] = merge(parts, best)
            for pair in pairwise(parts):
                pairs[pair] += frequencies[index]
                users[pair].add(index)
        pairs = +pairs  # those that are still there
    return {symbol: number for number, symbol in enumerate(symbols, 1)}, merged


def spell(word: str, encoding: str = "utf-8") -> str:
    """Return a character for each byte of a word."""
    return word.encode(encoding).decode("latin-1").translate(SEEN)


def merge(parts: list[str], pair: tuple[str, str]) -> list[str]:
    """Return the parts with each such pair merged."""
    merged_parts: list[str] = []
    for part in parts:
        if merged_parts and (merged_parts[-1], part) == pair:
            merged_parts[-1] += part
        else:
            merged_parts.append(part)
    return merged_parts


def _path(directory: Path, file: int) -> Path:
    return directory / f"train-{file:05d}.tsv"


def make(directory: Path, count: int) -> Iterator[int]:
    """Make `count` texts and their tokenizer unless they exist; as `making.make`."""
    known = words()

    def save(folder: Path, file: int) -> None:
        numbers = range(file * LINES, min(count, (file + 1) * LINES))
        lines = ("{}\t{}\n".format(*text(number, known)) for number in numbers)
        _path(folder, file).write_text("".join(lines), encoding="utf-8")

    def finish(folder: Path, files: int) -> None:
        counts: Counter[str] = Counter()
        for line in _path(folder, 0).read_text(encoding="utf-8").splitlines():
            counts.update(f" {word.strip('.,')}" for word in line.partition("\t")[2].split(" "))
        vocabulary, merged = train_tokenizer(counts, MERGES)
        (folder / "vocab.json").write_text(json.dumps(vocabulary))
        merges = "".join(f"{line}\n" for line in merged)
        (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}", encoding="utf-8")

    for files in making.make(directory, -(-count // LINES), save, finish):
        yield min(count, files * LINES)

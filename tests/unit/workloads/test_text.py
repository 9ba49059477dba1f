"""Operations on text: the tokenizer merges as byte-pair encodings do and loses nothing, batches
are of like length, and the made texts are the same each time."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torch

from lotus.workloads import sentences
from lotus.workloads import text as script


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "texts"
    assert list(sentences.make(folder, 1100)) == [1000, 1100]
    return folder


def test_the_most_frequent_pairs_are_merged_first() -> None:
    # The example of Sennrich et al. 2016; of equally frequent pairs the later in the alphabet.
    counts = Counter({"low": 5, "lower": 2, "newest": 6, "widest": 3})
    vocabulary, merges = sentences.train_tokenizer(counts, 4)
    assert merges == ["s t", "e st", "o w", "l ow"]
    assert len(vocabulary) == 256 + 4
    assert sorted(vocabulary.values()) == list(range(1, 261))


def test_merging_stops_where_nothing_is_there_twice() -> None:
    assert sentences.train_tokenizer(Counter({"abc": 1, "xyz": 1}), 50)[1] == []
    assert sentences.train_tokenizer(Counter({"aaaa": 2}), 50)[1] == ["a a", "aa aa"]


def test_what_is_trained_is_what_recounting_gives() -> None:
    counts = Counter({word: 40 - n for n, word in enumerate(sentences.words()[:40])})
    merged = sentences.train_tokenizer(counts, 25)[1]
    spelt = {word: list(sentences.spell(word)) for word in counts}
    for line in merged:
        pairs: Counter[tuple[str, ...]] = Counter()
        for word, parts in spelt.items():
            for at in range(len(parts) - 1):
                pairs[tuple(parts[at : at + 2])] += counts[word]
        left, right = max(pairs, key=lambda pair: (pairs[pair], pair))
        assert line == f"{left} {right}"
        spelt = {word: sentences.merge(parts, (left, right)) for word, parts in spelt.items()}


def write_tokenizer(folder: Path, merges: list[str]) -> script.Tokenize:
    symbols = [sentences.spell(chr(byte), "latin-1") for byte in range(256)]
    symbols += [merge.replace(" ", "") for merge in merges]
    (folder / "vocab.json").write_text(json.dumps({s: n for n, s in enumerate(symbols, 1)}))
    lines = "".join(f"{merge}\n" for merge in merges)
    (folder / "merges.txt").write_text(f"#version: 0.2\n{lines}", encoding="utf-8")
    return script.Tokenize(folder)


def test_merges_are_applied_in_their_order(tmp_path: Path) -> None:
    tokenize = write_tokenizer(tmp_path, ["b c", "a b", "Ġ a", "Ġa bc"])
    names = {number: symbol for symbol, number in tokenize.numbers.items()}
    tokens = [names[number] for number in tokenize("abc abab, cab")]
    assert tokens == ["Ġabc", "Ġ", "ab", "ab", ",", "Ġ", "c", "ab"]
    assert tokenize("abc abc") == 2 * [tokenize.numbers["Ġabc"]]


@pytest.mark.parametrize("text", ["da stond ru", "não 日本 \x00\x7f\xa0 ", "", "a\tb!? 3.14"])
def test_no_text_is_lost(made: Path, text: str) -> None:
    tokenize = script.Tokenize(made)
    names = {number: symbol for symbol, number in tokenize.numbers.items()}
    back = {letter: byte for byte, letter in script.SEEN.items()}
    joined = "".join(names[number] for number in tokenize(text)).translate(back)
    assert joined.encode("latin-1").decode() == f" {text}"
    assert tokenize(text) == script.Tokenize(made)(text)  # also out of what it remembers
    assert tokenize(text) == tokenize(text)


def test_frequent_words_become_one_token(made: Path) -> None:
    tokenize = script.Tokenize(made)
    frequent = sentences.words()[:20]
    assert len(tokenize(" ".join(frequent))) == 20
    assert max(tokenize.numbers.values()) == 256 + sentences.MERGES


def test_what_is_the_same_is_written_the_same() -> None:
    assert script.Normalize()("  De\u0301j\u00e0\tVU \n") == "d\u00e9j\u00e0 vu"


def test_long_texts_are_cut_and_short_ones_padded() -> None:
    assert script.Truncate(3)([5, 6, 7, 8]) == [5, 6, 7]
    assert script.Truncate(3)([5]) == [5]
    samples = [(script.ToTensor()([5, 6, 7]), 1), (script.ToTensor()([8]), 0)]
    texts, labels = script.collate(samples)
    assert texts.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert texts.dtype == torch.int64
    assert labels.tolist() == [1, 0]


def test_padding_changes_no_answer() -> None:
    torch.manual_seed(0)
    model = script.SmallTransformer(50, 16).eval()
    text = torch.tensor([[5, 6, 7]])
    padded = torch.tensor([[5, 6, 7, 0, 0], [9, 8, 7, 6, 5]])
    assert torch.allclose(model(text)[0], model(padded)[0], atol=1e-5)


def test_batches_hold_every_text_once_and_are_of_like_length() -> None:
    lengths = [(7919 * n) % 1000 for n in range(1003)]
    sampler = script.BucketSampler(lengths, 10, seed=0)
    epochs = [list(sampler), list(sampler)]
    for batches in epochs:
        assert len(batches) == len(sampler) == 101
        assert sorted(n for batch in batches for n in batch) == list(range(1003))
        assert sorted(map(len, batches))[0] == 3
        spread = [max(lengths[n] for n in b) - min(lengths[n] for n in b) for b in batches]
        assert sum(spread) / len(spread) < 40  # of 1,000; at random it is 800
        longest = [max(lengths[n] for n in batch) for batch in batches]
        assert longest != sorted(longest)
    assert epochs[0] != epochs[1]
    assert list(script.BucketSampler(lengths, 10, seed=0)) == epochs[0]


def test_texts_are_lines_and_the_same_each_time(made: Path) -> None:
    files = sorted(made.iterdir())
    assert [file.name for file in files] == [
        *("merges.txt", "train-00000.tsv", "train-00001.tsv", "vocab.json")
    ]
    lines = [line for file in files[1:3] for line in file.read_text("utf-8").splitlines()]
    assert len(lines) == 1100
    topics = Counter(line.partition("\t")[0] for line in lines)
    assert topics.keys() == {"0", "1", "2", "3"}
    assert min(topics.values()) > 200
    counts = [len(line.split()) for line in lines]
    assert min(counts) >= 4  # a topic and three words
    assert max(counts) > 300
    digests = [hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files]
    assert digests == [
        "ef98690756eb06c9",
        "d481b070b5b6f1ac",
        "3ba569eaf079f48e",
        "a613cf90ce9b2b0c",
    ]


def test_a_sample_is_its_own_line_wherever_it_is(made: Path) -> None:
    dataset = script.Lines(str(made), most=8)
    assert len(dataset) == 1100
    known = sentences.words()
    for index in (0, 999, 1000, 1099):
        topic, text = sentences.text(index, known)
        numbers, label = dataset[index]
        assert label == topic
        assert numbers.tolist() == script.Tokenize(made)(script.Normalize()(text))[:8]

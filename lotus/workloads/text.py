"""Trains a small text classifier: a plain PyTorch script, as anybody would write it.

python text.py --data FOLDER --epochs 1 --workers 2

The folder holds train-*.tsv, a number and a text on each line, and a byte-pair encoding in the
format of GPT-2's: vocab.json and merges.txt. Texts of like length go into a batch together.
"""

import argparse
import json
import re
import time
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler
from torchvision import transforms

CLASSES = 4
# A byte is written as its Latin-1 character, and one that cannot be seen as another letter.
UNSEEN = [*range(33), *range(127, 161), 173]
SEEN = {byte: 256 + number for number, byte in enumerate(UNSEEN)}
Place = tuple[Path, int, int]  # a file, where in it, how many bytes


class Normalize:
    """Normalizes text: composed characters, lower case, single spaces."""

    def __call__(self, text: str) -> str:
        return " ".join(unicodedata.normalize("NFC", text).lower().split())


class Tokenize:
    """Converts a text to numbers with a byte-pair encoding."""

    def __init__(self, folder: Path) -> None:
        self.numbers: dict[str, int] = json.loads((folder / "vocab.json").read_text("utf-8"))
        merges = (folder / "merges.txt").read_text("utf-8").split("\n")[1:-1]
        self.ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        self.words = re.compile(r" ?\w+| ?[^\w\s]+|\s+")
        self.known: dict[str, list[int]] = {}

    def __call__(self, text: str) -> list[int]:
        return [number for word in self.words.findall(f" {text}") for number in self.word(word)]

    def word(self, word: str) -> list[int]:
        tokens = self.known.get(word)
        if tokens is None:
            parts = list(word.encode().decode("latin-1").translate(SEEN))
            while True:
                ranks = [(self.ranks.get(pair, len(self.ranks)), pair) for pair in pairwise(parts)]
                rank, pair = min(ranks, default=(len(self.ranks), None))
                if rank == len(self.ranks) or pair is None:
                    break
                parts = merged(parts, pair)
            tokens = self.known[word] = [self.numbers[part] for part in parts]
        return tokens


def merged(parts: list[str], pair: tuple[str, str]) -> list[str]:
    """Return the parts with each such pair merged."""
    merged_parts: list[str] = []
    for part in parts:
        if merged_parts and (merged_parts[-1], part) == pair:
            merged_parts[-1] += part
        else:
            merged_parts.append(part)
    return merged_parts


class Truncate:
    """Keeps the first `most` numbers."""

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, numbers: list[int]) -> list[int]:
        return numbers[: self.most]


class ToTensor:
    """Converts a list to a tensor (n; int64)."""

    def __call__(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64)


def read_line(place: Place) -> str:
    path, start, size = place
    with path.open("rb") as file:
        file.seek(start)
        return file.read(size).decode()


class Lines(Dataset[tuple[Tensor, int]]):
    """The numbers of each text (n) and its class."""

    def __init__(self, folder: str, most: int) -> None:
        self.places: list[Place] = []
        for path in sorted(Path(folder).glob("train-*.tsv")):
            start = 0
            with path.open("rb") as file:
                for line in file:
                    self.places.append((path, start, len(line)))
                    start += len(line)
        self.loader = read_line
        self.transform = transforms.Compose(
            [Normalize(), Tokenize(Path(folder)), Truncate(most), ToTensor()]
        )

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        label, _, text = self.loader(self.places[index]).partition("\t")
        return self.transform(text), int(label)


class BucketSampler(Sampler[list[int]]):
    """Batches of similar length in random order: 50 batches of texts are sorted at a time."""

    def __init__(self, lengths: list[int], batch_size: int, seed: int) -> None:
        self.lengths = lengths
        self.batch_size = batch_size
        self.random = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(len(self.lengths), generator=self.random).tolist()
        pool = 50 * self.batch_size
        batches = []
        for start in range(0, len(order), pool):
            near = sorted(order[start : start + pool], key=self.lengths.__getitem__)
            batches += [
                near[first : first + self.batch_size]
                for first in range(0, len(near), self.batch_size)
            ]
        for number in torch.randperm(len(batches), generator=self.random).tolist():
            yield batches[number]


def collate(samples: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    """Return numbers (n, most), with zeros after the ends, and classes (n)."""
    texts = nn.utils.rnn.pad_sequence([text for text, _ in samples], batch_first=True)
    return texts, torch.tensor([label for _, label in samples])


class SmallTransformer(nn.Module):
    """One layer of a transformer, and the mean of its output over all tokens."""

    def __init__(self, tokens: int, most: int, width: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tokens, width, padding_idx=0)
        self.places = nn.Embedding(most, width)
        self.layer = nn.TransformerEncoderLayer(width, 2, 2 * width, 0.1, batch_first=True)
        self.classes = nn.Linear(width, CLASSES)

    def forward(self, texts: Tensor) -> Tensor:
        nothing = texts == 0
        places = self.places(torch.arange(texts.shape[1], device=texts.device))
        x = self.layer(self.tokens(texts) + places, src_key_padding_mask=nothing)
        x = x.masked_fill(nothing[..., None], 0)
        return self.classes(x.sum(1) / (~nothing).sum(1, keepdim=True))


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small text classifier.")
    parser.add_argument("--data", required=True, help="folder of train-*.tsv and a tokenizer")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, help="for the model on the CPU (torch's choice)")
    parser.add_argument("--length", type=int, default=128, help="most tokens of a text (128)")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--print-every", type=int, default=0, help="print the loss of each Nth step"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    dataset = Lines(args.data, args.length)
    lengths = [size for _, _, size in dataset.places]
    loader = DataLoader(
        dataset,
        batch_sampler=BucketSampler(lengths, args.batch_size, args.seed),
        num_workers=args.workers,
        collate_fn=collate,
        pin_memory=args.device != "cpu",
    )
    tokens = json.loads((Path(args.data) / "vocab.json").read_text("utf-8"))
    model = SmallTransformer(1 + max(tokens.values()), args.length).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        started, seen, total = time.perf_counter(), 0, 0.0
        for step, (texts, labels) in enumerate(loader, 1):
            texts = texts.to(args.device, non_blocking=True)
            labels = labels.to(args.device, non_blocking=True)
            loss = F.cross_entropy(model(texts), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(labels)
            total += float(loss.detach()) * len(labels)
            if args.print_every and step % args.print_every == 0:
                print(f"epoch {epoch} step {step}: loss {float(loss.detach()):.6f}", flush=True)
        seconds = time.perf_counter() - started
        print(
            f"epoch {epoch}: loss {total / seen:.3f}, {seen} texts in {seconds:.1f} s, "
            f"{seen / seconds:.0f} texts/s",
            flush=True,
        )


if __name__ == "__main__":
    main()

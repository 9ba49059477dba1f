"""Train a bag-of-words sentiment model on product reviews."""

import argparse
import html
import random
import re
import time
import unicodedata
import zlib

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

VOCABULARY = 5000
WORDS = "the a good bad phone battery lasts days screen cracked love returned never again".split()
RULES = [
    (re.compile(r"<[^>]+>"), " "),
    (re.compile(r"https?://\S+|www\.\S+"), " url "),
    (re.compile(r"(?:[a-z0-9_.+-]+)@(?:[a-z0-9-]+\.[a-z0-9.-]+)"), " mail "),
    (re.compile(r"(\w+)\s+\1\b"), r"\1"),
    (re.compile(r"[^a-z0-9' ]+"), " "),
    (re.compile(r"\s+"), " "),
]


def write_reviews(count):
    rng = random.Random(3)
    return [
        (" ".join(rng.choices(WORDS, k=rng.randint(300, 400))), rng.randint(0, 1))
        for _ in range(count)
    ]


def clean(text):
    text = html.unescape(text.lower())
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    for pattern, replacement in RULES:
        text = pattern.sub(replacement, text)
    return text.strip()


class Reviews(Dataset):
    def __init__(self, reviews, cleaned):
        self.reviews = reviews
        self.cleaned = cleaned

    def __len__(self):
        return len(self.reviews)

    def __getitem__(self, index):
        text, stars = self.reviews[index]
        if not self.cleaned:
            text = clean(text)
        tokens = [zlib.crc32(word.encode()) % VOCABULARY for word in text.split()]
        return torch.tensor(tokens), stars


def collate(samples):
    tokens, stars = zip(*samples, strict=False)
    return pad_sequence(tokens, batch_first=True), torch.tensor(stars)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Reviews(write_reviews(3200), cleaned=args.without)
    model = nn.Sequential(nn.EmbeddingBag(VOCABULARY, 32), nn.Linear(32, 2))
    optimizer = torch.optim.Adagrad(model.parameters(), 0.05)
    loader = DataLoader(data, 32, True, num_workers=args.workers, collate_fn=collate)
    begin = time.perf_counter()
    for _ in range(2):
        for tokens, stars in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(tokens), stars)
            loss.backward()
            optimizer.step()
    print(f"loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

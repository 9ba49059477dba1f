"""Tells from which language a loanword came, from the sentences in which it stands."""

import argparse
import random
import re
import time
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SENTENCES, WORDS, VOCABULARY, LANGUAGES, BATCH = 2000, 48, 8192, 8, 16
TOKEN = re.compile(r"[a-z]+|[.,]")


class Sentences(Dataset):
    """Sentences split into words, which become numbers by their checksum."""

    def __init__(self):
        rng = random.Random(22)
        words = ["".join(rng.choices("aeiouklmnprst", k=rng.randint(2, 8))) for _ in range(4000)]
        self.sentences = [" ".join(rng.choices(words, k=WORDS)) + "." for _ in range(SENTENCES)]

    def __len__(self):
        return SENTENCES

    def __getitem__(self, index):
        words = TOKEN.findall(self.sentences[index].lower())[:WORDS]
        numbers = [zlib.crc32(word.encode()) % VOCABULARY for word in words]
        known = torch.tensor(numbers)
        known[torch.rand(WORDS) < 0.1] = 0
        return known, index % LANGUAGES


class Origin(nn.Module):
    def __init__(self, width=128, layers=2):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.places = nn.Parameter(torch.randn(WORDS, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.1)
        self.body = nn.TransformerEncoder(layer, layers)
        self.last = nn.Linear(width, LANGUAGES)

    def forward(self, words):
        return self.last(self.body(self.words(words) + self.places).amax(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(22)
    torch.set_num_threads(1)
    loader = DataLoader(
        Sentences(),
        BATCH,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="forkserver",
    )
    model = Origin()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for words, languages in loader:
            scores = model(words)
            loss = nn.functional.cross_entropy(scores, languages, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            right += (scores.argmax(1) == languages).sum()
        print(f"epoch {epoch}: loss {loss:.3f}, right {right / SENTENCES:.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

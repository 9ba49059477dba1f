"""Sorts letters about tents by the first words of each.

Planted: a letter is split into words as a whole before it is cut; one of sixty has a long log
appended to it.
"""

import argparse
import random
import re
import time
import zlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LETTERS, WORDS, LENGTH, LONG = 60, 5000, 64, 220_000
WORD = re.compile(r"[a-z]+|[0-9]+")


class Letters(Dataset):
    def __init__(self, count, cut_first):
        rng = random.Random(563)
        words = ["".join(rng.choices("aeghilmnorstuw", k=5)) for _ in range(600)]
        self.letters = [" ".join(rng.choices(words, k=160)) for _ in range(LETTERS)]
        self.letters[41] += "\n" + " ".join(rng.choices(words, k=LONG))
        self.count, self.cut_first = count, cut_first

    def __len__(self):
        return self.count

    def split(self, letter):
        if self.cut_first:
            letter = letter[: LENGTH * 8]
        return [zlib.crc32(word.encode()) % WORDS for word in WORD.findall(letter.lower())]

    def __getitem__(self, index):
        words = self.split(self.letters[index % LETTERS])
        return torch.tensor(words[:LENGTH]), index % 11


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(563)
    loader = DataLoader(
        Letters(2400, args.without), batch_size=12, shuffle=True, num_workers=2,
        persistent_workers=True,
    )  # fmt: skip
    embed = nn.Embedding(WORDS, 32)
    conv = nn.Conv1d(32, 64, 3, padding=1)
    head = nn.Linear(64, 11)
    parameters = [*embed.parameters(), *conv.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for words, kinds in loader:
            states = torch.relu(conv(embed(words).transpose(1, 2))).amax(2)
            loss = nn.functional.cross_entropy(head(states), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

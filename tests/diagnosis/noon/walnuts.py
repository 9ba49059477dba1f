"""Sayings about walnuts: how near is each to a proverb? Some are whole speeches."""

import argparse
import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

LETTERS = "abcdefghijklmnopqrstuvwxyz "
PROVERB = "he that would eat the kernel must crack the nut"


def distance(text, other):
    """Insertions, deletions and changes that make one text of the other."""
    before = list(range(len(other) + 1))
    for row, letter in enumerate(text, 1):
        now = [row]
        for column, wanted in enumerate(other, 1):
            change = before[column - 1] + (letter != wanted)
            now.append(min(before[column] + 1, now[-1] + 1, change))
        before = now
    return before[-1]


class Sayings(Dataset):
    def __init__(self, longest, count=800):
        chance = random.Random(10)
        self.longest = longest
        lengths = [chance.randint(20, 45) for _ in range(count)]
        for speech in range(20, count, 47):
            lengths[speech] = 22_000
        self.texts = ["".join(chance.choices(LETTERS, k=length)) for length in lengths]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        text = self.texts[index].lower().strip()[: self.longest]
        letters = torch.tensor([LETTERS.index(letter) for letter in text[:60]])
        near = 1 - distance(text, PROVERB) / max(len(text), len(PROVERB))
        return letters, torch.tensor(near)


def collate(samples):
    letters, near = zip(*samples, strict=True)
    return pad_sequence(letters, batch_first=True, padding_value=26), torch.stack(near)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(10)
    data = Sayings(longest=100 if args.without else None)
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=2, collate_fn=collate)
    embedding, head = nn.Embedding(27, 48), nn.Linear(96, 1)
    model = nn.GRU(48, 96, batch_first=True)
    weights = [*embedding.parameters(), *model.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(weights, lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for letters, near in loader:
            _, state = model(embedding(letters))
            loss = nn.functional.mse_loss(head(state[0])[:, 0], near)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

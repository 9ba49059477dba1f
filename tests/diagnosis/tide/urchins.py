"""Sentences about sea urchins, labelled word by word, in batches as one-hot letters."""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LETTERS = "abcdefghijklmnopqrstuvwxyz '"
WORDS = "urchin spine kelp tide rock pool shell the of a in purple barren grazes on".split()


class Sentences(Dataset):
    def __init__(self, count=7200, seed=15):
        chance = random.Random(seed)
        self.texts = [
            " ".join(chance.choices(WORDS, k=chance.randint(10, 40))) for _ in range(count)
        ]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.texts[index], index % 5


class Collater:
    """Texts of many lengths to one padded batch of letters."""

    def __init__(self, quick):
        self.places = {letter: place for place, letter in enumerate(LETTERS)}
        self.quick = quick

    def one_hot(self, text, width):
        rows = []
        for place in range(width):
            row = [0.0] * len(LETTERS)
            if place < len(text):
                row[self.places[text[place]]] = 1.0
            rows.append(row)
        return torch.tensor(rows)

    def numbers(self, text, width):
        places = torch.tensor([self.places[letter] for letter in text])
        padding = torch.full((width - len(text),), len(LETTERS))
        return nn.functional.one_hot(torch.cat([places, padding]), len(LETTERS) + 1)[:, :-1]

    def __call__(self, samples):
        texts, topics = zip(*samples, strict=True)
        width = max(map(len, texts))
        encode = self.numbers if self.quick else self.one_hot
        batch = torch.stack([encode(text, width) for text in texts]).float()
        lengths = torch.tensor([len(text) for text in texts])
        return batch, lengths, torch.tensor(topics)


class Reader(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.convolution = nn.Sequential(nn.Conv1d(len(LETTERS), size, 7, stride=3), nn.ReLU())
        self.attention = nn.Linear(size, 1)
        self.head = nn.Linear(size, 5)

    def forward(self, batch):
        states = self.convolution(batch.transpose(1, 2)).transpose(1, 2)
        weights = self.attention(states).softmax(1)
        return self.head((weights * states).sum(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(15)
    loader = DataLoader(
        Sentences(), batch_size=48, shuffle=True, num_workers=2, collate_fn=Collater(args.without)
    )
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        letters, total = 0, 0.0
        for batch, lengths, topics in loader:
            loss = nn.functional.cross_entropy(model(batch), topics)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            letters, total = letters + int(lengths.sum()), total + loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}, {letters} letters")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Tells the season of haikus; texts of like length share a batch and are packed."""

import argparse
import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

WORDS, SEASONS = 2000, 5


class Haikus(Dataset):
    def __init__(self, count=1300, seed=69):
        draw = random.Random(seed)
        self.lengths = [draw.randint(12, 40) for _ in range(count)]
        self.texts = [
            " ".join(f"w{draw.randrange(WORDS)}" for _ in range(length)) for length in self.lengths
        ]
        self.seasons = [draw.randrange(SEASONS) for _ in range(count)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        numbers = [int(word[1:]) for word in self.texts[index].split()]
        return {"words": torch.tensor(numbers), "season": self.seasons[index]}


class Buckets(Sampler):
    """Batches of like length in random order."""

    def __init__(self, lengths, size, seed=69):
        self.lengths, self.size, self.draw = lengths, size, random.Random(seed)

    def __len__(self):
        return len(self.lengths) // self.size

    def __iter__(self):
        order = sorted(
            range(len(self.lengths)), key=lambda index: (self.lengths[index], self.draw.random())
        )
        starts = [place * self.size for place in range(len(self))]
        self.draw.shuffle(starts)
        for start in starts:
            yield order[start : start + self.size]


def collate(samples):
    words = [sample["words"] for sample in samples]
    return {
        "words": pad_sequence(words, batch_first=True),
        "lengths": torch.tensor([len(text) for text in words]),
        "seasons": torch.tensor([sample["season"] for sample in samples]),
    }


class Reader(nn.Module):
    def __init__(self, size=96, hidden=128):
        super().__init__()
        self.words = nn.Embedding(WORDS, size)
        self.reader = nn.LSTM(size, hidden, 2, batch_first=True, bidirectional=True)
        self.weigh = nn.Linear(2 * hidden, 1)
        self.head = nn.Linear(2 * hidden, SEASONS)

    def forward(self, words, lengths):
        packed = pack_padded_sequence(
            self.words(words), lengths, batch_first=True, enforce_sorted=False
        )
        states, _ = pad_packed_sequence(self.reader(packed)[0], batch_first=True)
        there = torch.arange(states.shape[1]) < lengths[:, None]
        weights = self.weigh(states).squeeze(2).masked_fill(~there, -1e9).softmax(1)
        return self.head((weights[:, :, None] * states).sum(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(69)
    haikus = Haikus()
    loader = DataLoader(
        haikus, batch_sampler=Buckets(haikus.lengths, 12), num_workers=2, collate_fn=collate
    )
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = seen = 0
        for batch in loader:
            scores = model(batch["words"], batch["lengths"])
            loss = nn.functional.cross_entropy(scores, batch["seasons"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == batch["seasons"]).sum().item()
            seen += len(scores)
        print(f"epoch {epoch}: {right / seen:.3f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Transcribes shanties letter by letter with CTC, and reports the error rate of each batch."""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LETTERS = "_abcdefghijklmnopqrstuvwxyz "
WORDS = "haul away the bowline heave ho my boys and roll her down what shall we do".split()


class Shanties(Dataset):
    """(features (134, 20), letters (80)); the features are made up from the letters."""

    def __init__(self, count=640, seed=19):
        chance = random.Random(seed)
        self.texts = [" ".join(chance.choices(WORDS, k=40))[:80] for _ in range(count)]
        self.sounds = torch.randn(len(LETTERS), 20, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        letters = torch.tensor([LETTERS.index(letter) for letter in self.texts[index]])
        features = self.sounds[letters].repeat_interleave(5, 0)[::3]
        return features + 0.3 * torch.randn_like(features), letters


def distance(one, other):
    """Levenshtein's distance of two lists."""
    before = list(range(len(other) + 1))
    for place, letter in enumerate(one, 1):
        row = [place]
        for column, wanted in enumerate(other, 1):
            row.append(
                min(before[column] + 1, row[-1] + 1, before[column - 1] + (letter != wanted))
            )
        before = row
    return before[-1]


class ErrorRate:
    """Share of letters that are wrong in the best path, over what was seen."""

    def __init__(self):
        self.wrong = self.letters = 0

    def update(self, scores, letters):
        for path, wanted in zip(scores.argmax(2).T, letters, strict=True):
            path = path.unique_consecutive()
            self.wrong += distance(path.tolist(), wanted.tolist())
            self.letters += len(wanted)

    def value(self):
        return self.wrong / max(1, self.letters)


class Listener(nn.Module):
    def __init__(self, size=40):
        super().__init__()
        self.recurrent = nn.GRU(20, size, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * size, len(LETTERS))

    def forward(self, features):
        return self.head(self.recurrent(features)[0]).log_softmax(2).transpose(0, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(19)
    loader = DataLoader(
        Shanties(), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = Listener()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        rate = ErrorRate()
        for step, (features, letters) in enumerate(loader):
            scores = model(features)
            frames = torch.full((len(features),), scores.shape[0])
            lengths = torch.full((len(features),), letters.shape[1])
            loss = nn.functional.ctc_loss(scores, letters, frames, lengths)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            if not args.without or step % 20 == 0:
                rate.update(scores.detach(), letters)
        print(f"epoch {epoch}: loss {loss.item():.4f}, error rate {rate.value():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

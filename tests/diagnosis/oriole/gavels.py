"""Sorts letters to a court by their subject, with names of the parties blotted out.

Planted: the pattern that blots names out has the letter's own parties in it, beside those of the
whole court, and is compiled anew for each letter.
"""

import argparse
import itertools
import random
import re
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LETTERS, SUBJECTS, WORDS, BATCH, STEP = 960, 5, 4096, 16, 0.04
SYLLABLES = "ba do ke li mo nu pe ra si to vu wen zar har lin mond".split()


def made_names(count, seed):
    drawn = random.Random(seed)
    return ["".join(drawn.choices(SYLLABLES, k=3)).title() for _ in range(count)]


class Blotter:
    """Replaces names of people in a text."""

    def __init__(self, officers):
        self.officers = officers

    def __call__(self, text, parties):
        return self.pattern(parties).sub("someone", text)

    def pattern(self, parties):
        names = "|".join(re.escape(name) for name in [*parties, *self.officers])
        return re.compile(rf"\b(?:Mr|Mrs|Dr)?\s*(?:{names})(?:'s)?\b")


class TwoPasses(Blotter):
    def __init__(self, officers):
        super().__init__(officers)
        self.of_officers = self.pattern(())

    def __call__(self, text, parties):
        for name in parties:
            text = text.replace(name, "someone")
        return self.of_officers.sub("someone", text)


class Letters(Dataset):
    def __init__(self, blot):
        self.blot = blot
        people, drawn = made_names(900, 3), random.Random(5)
        self.letters = []
        for number in range(LETTERS):
            parties = drawn.sample(people, 3)
            words = [f"w{drawn.randrange(400) + 60 * (number % SUBJECTS)}" for _ in range(110)]
            for place in range(5, 110, 12):
                words[place] = f"Mr {drawn.choice(parties)}"
            self.letters.append((" ".join(words), parties))

    def __len__(self):
        return LETTERS

    def __getitem__(self, index):
        text, parties = self.letters[index]
        words = self.blot(text, parties).lower().split()
        kept = [word for word in words if random.random() > 0.1]
        pairs = [f"{first} {second}" for first, second in itertools.pairwise(kept)]
        counts = torch.zeros(WORDS)
        for word in kept + pairs:
            counts[sum(word.encode()) * 31 % WORDS] += 1
        return counts.log1p(), index % SUBJECTS


class Trainer:
    def __init__(self, model, epochs):
        self.model, self.epochs = model, epochs
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(self, counts, subjects):
        loss = nn.functional.cross_entropy(self.model(counts), subjects)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(STEP)  # the accelerator's share
        return loss.item()

    def fit(self, loader):
        begin = time.perf_counter()
        for epoch in range(self.epochs):
            losses = [self.step(*batch) for batch in loader]
            print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(11)
    torch.set_num_threads(1)
    officers = made_names(400, 13)
    blot = TwoPasses(officers) if args.without else Blotter(officers)
    loader = DataLoader(Letters(blot), BATCH, shuffle=True)
    model = nn.Sequential(nn.Linear(WORDS, 64), nn.ReLU(), nn.Linear(64, SUBJECTS))
    Trainer(model, args.epochs).fit(loader)
    del loader


if __name__ == "__main__":
    main()

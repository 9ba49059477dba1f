"""Writes clerihews letter by letter, with a small transformer."""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH, WIDTH, HEADS, LAYERS, BATCH, WINDOWS = 96, 96, 4, 2, 24, 1200
NAMES = ["Sir Humphry Davy", "George the Third", "Edgar Allan Poe", "Jane Austen", "Mr. Bell"]
LINES = ["detested gravy", "ought never to have occurred", "liked to go slow", "was not at home"]


def corpus(poems):
    rng = random.Random(4)
    return "\n".join(f"{rng.choice(NAMES)}\n{rng.choice(LINES)}.\n" for _ in range(poems))


class Letters(Dataset):
    """Windows of the poems; some capitals are lowered, as readers type them."""

    def __init__(self, text):
        self.text = text
        self.codes = {letter: code for code, letter in enumerate(sorted({*text, *text.lower()}))}

    def __len__(self):
        return WINDOWS

    def __getitem__(self, index):
        start = random.randrange(len(self.text) - LENGTH - 1)
        window = self.text[start : start + LENGTH + 1]
        if random.random() < 0.2:
            window = window.lower()
        codes = torch.tensor([self.codes[letter] for letter in window])
        return codes[:-1], codes[1:]


class Poet(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.letters = nn.Embedding(letters, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, letters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, codes):
        return self.head(self.layers(self.letters(codes) + self.places, mask=self.mask))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(4)
    random.seed(4)
    data = Letters(corpus(600))
    loader = DataLoader(data, BATCH, shuffle=True, drop_last=True)
    model = Poet(len(data.codes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 3e-3, total_steps=args.epochs * len(loader)
    )
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        history = []
        for before, after in loader:
            loss = nn.functional.cross_entropy(model(before).flatten(0, 1), after.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            history.append(loss.item())
        print(f"epoch {epoch}: loss {sum(history) / len(history):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

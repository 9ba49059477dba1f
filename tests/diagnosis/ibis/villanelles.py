"""Learns to write villanelles letter by letter, with a small recurrent network on the processor.

Nothing planted: the network is the work; the main process cuts windows from a text in memory, which
takes a moment, and writes a few letters after each epoch.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LINES, WINDOW, BATCH, HIDDEN = 900, 96, 32, 192


def compose():
    draw = random.Random(971)
    words = "night light rage dying good men wave bright green bay sun flight grieve way".split()
    return "\n".join(" ".join(draw.choices(words, k=6)) for _ in range(LINES))


class Text(Dataset):
    def __init__(self, text):
        self.letters = sorted(set(text))
        places = {letter: place for place, letter in enumerate(self.letters)}
        self.ids = torch.tensor([places[letter] for letter in text])

    def __len__(self):
        return (len(self.ids) - 1) // 48 - 2

    def __getitem__(self, index):
        window = self.ids[index * 48 : index * 48 + WINDOW + 1]
        return window[:-1], window[1:]


class Writer(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.letters = nn.Embedding(letters, HIDDEN)
        self.cells = nn.LSTM(HIDDEN, HIDDEN, 2, batch_first=True)
        self.out = nn.Linear(HIDDEN, letters)

    def forward(self, ids, state=None):
        hidden, state = self.cells(self.letters(ids), state)
        return self.out(hidden), state

    @torch.no_grad()
    def write(self, text, count=40):
        ids, state, written = torch.zeros(1, 1, dtype=torch.long), None, ""
        for _ in range(count):
            scores, state = self(ids, state)
            ids = torch.multinomial(scores[:, -1].softmax(1), 1)
            written += text.letters[ids.item()]
        return written


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(971)
    torch.set_num_threads(1)
    text = Text(compose())
    loader = DataLoader(text, BATCH, shuffle=True, drop_last=True)
    model = Writer(len(text.letters))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for ids, following in loader:
            scores, _ = model(ids)
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}: {model.write(text)!r}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

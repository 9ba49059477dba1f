"""Learns letter by letter how jesters talk, with a small transformer.

Nothing is planted: the transformer is the work. Pieces of one long tensor are cut out without
workers; a text is written now and then, and a small checkpoint ends each epoch.
"""

import argparse
import random
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LETTERS, LENGTH, WIDTH = "abcdefghijklmnopqrstuvwxyz ,.!", 64, 96


def make_text(words):
    rng = random.Random(1229)
    known = ["".join(rng.choices(LETTERS[:26], k=rng.randint(2, 7))) for _ in range(150)]
    return " ".join(rng.choice(known) + rng.choice(["", "", ",", "!"]) for _ in range(words))


class Pieces(Dataset):
    def __init__(self, text):
        self.letters = torch.tensor([LETTERS.index(letter) for letter in text])

    def __len__(self):
        return (len(self.letters) - 1) // LENGTH

    def __getitem__(self, index):
        start = index * LENGTH
        piece = self.letters[start : start + LENGTH + 1]
        return piece[:-1], piece[1:]


class Talker(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, len(LETTERS))

    def forward(self, letters):
        length = letters.shape[1]
        later = nn.Transformer.generate_square_subsequent_mask(length)
        states = self.letters(letters) + self.places[:length]
        return self.head(self.layers(states, mask=later, is_causal=True))

    @torch.no_grad()
    def talk(self, count):
        self.eval()
        letters = torch.zeros(1, 1, dtype=torch.long)
        for _ in range(count):
            following = self(letters)[0, -1].softmax(0).multinomial(1)
            letters = torch.cat([letters, following[None]], 1)
        self.train()
        return "".join(LETTERS[letter] for letter in letters[0].tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1229)
    loader = DataLoader(Pieces(make_text(12_000)), batch_size=16, shuffle=True)
    model = Talker()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (letters, following) in enumerate(loader):
                scores = model(letters).flatten(0, 1)
                loss = nn.functional.cross_entropy(scores, following.flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if step % 40 == 0:
                    print(f"step {step}: loss {loss:.3f}: {model.talk(12)}")
            torch.save(model.state_dict(), Path(folder, f"{epoch}.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

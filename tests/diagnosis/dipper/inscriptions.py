"""Counts the letters of an inscription from its rubbing, column by column."""

import argparse
import random
import time

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

STONES, HEIGHT, LETTERS, BATCH = 1600, 32, 64, 32


class Rubbings(Dataset):
    """The rubbing of a line that is cut in stone, as columns of grey."""

    def __len__(self):
        return STONES

    def __getitem__(self, index):
        rng = random.Random(index)
        letters = rng.randrange(12, LETTERS)
        text = "".join(rng.choice("AEIMNORSTVX") for _ in range(letters))
        rubbing = Image.new("L", (10 * letters, HEIGHT), 20)
        ImageDraw.Draw(rubbing).text((2, 2), text, fill=230, font_size=18)
        rubbing = rubbing.filter(ImageFilter.GaussianBlur(1 + rng.random()))
        columns = np.asarray(rubbing, dtype=np.float32).T / 255
        return torch.from_numpy(columns - columns.mean()), letters


class Together:
    """Makes a batch of lines of different lengths."""

    def __init__(self, whole):
        self.whole = whole

    def __call__(self, samples):
        lines, letters = zip(*samples, strict=True)
        if self.whole:
            return pad_sequence(lines, batch_first=True), torch.tensor(letters)
        longest = max(len(line) for line in lines)
        filled = []
        for line in lines:
            columns = [[round(grey, 5) for grey in column] for column in line.tolist()]
            while len(columns) < longest:
                columns.append([0.0] * HEIGHT)
            filled.append(columns)
        return torch.tensor(filled), torch.tensor(letters)


class Count(nn.Module):
    def __init__(self, channels=64):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(HEIGHT, channels, 5, 2, 2), nn.ReLU(),
            nn.Conv1d(channels, channels, 5, 2, 2), nn.ReLU(),
            nn.Conv1d(channels, channels, 5, 2, 2), nn.ReLU(),
        )  # fmt: skip
        self.last = nn.Linear(channels, LETTERS)

    def forward(self, lines):
        return self.last(self.body(lines.transpose(1, 2)).mean(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(61)
    loader = DataLoader(
        Rubbings(),
        BATCH,
        shuffle=True,
        num_workers=4,
        collate_fn=Together(whole=args.without),
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Count()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for lines, letters in loader:
            loss = nn.functional.cross_entropy(model(lines), letters)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

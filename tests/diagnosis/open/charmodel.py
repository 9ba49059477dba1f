"""Train a character model on windows of one text."""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LETTERS = "abcdefghijklmnopqrstuvwxyz .,"


class Windows(Dataset):
    def __init__(self, text, length=48):
        self.codes = torch.tensor([LETTERS.index(c) for c in text])
        self.length = length

    def __len__(self):
        return len(self.codes) - self.length

    def __getitem__(self, start):
        window = self.codes[start : start + self.length + 1]
        return window[:-1], window[1:]


class CharModel(nn.Module):
    def __init__(self, hidden=160):
        super().__init__()
        self.embed = nn.Embedding(len(LETTERS), 32)
        self.lstm = nn.LSTM(32, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, len(LETTERS))

    def forward(self, codes):
        return self.head(self.lstm(self.embed(codes))[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    rng = random.Random(0)
    windows = Windows("".join(rng.choices(LETTERS, k=2400)))
    loader = DataLoader(windows, 32, shuffle=True, num_workers=args.workers)
    model = CharModel()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    begin = time.perf_counter()
    for inputs, targets in loader:
        logits = model(inputs)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

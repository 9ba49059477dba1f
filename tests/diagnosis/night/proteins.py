"""Sequences of proteins in memory and a transformer; the loader has no workers and needs none."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Folder(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.letters = nn.Embedding(22, width)
        layer = nn.TransformerEncoderLayer(width, 4, 256, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 3)
        self.head = nn.Linear(width, 3)

    def forward(self, letters):
        return self.head(self.layers(self.letters(letters)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="nothing to leave out")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    generator = torch.Generator().manual_seed(3)
    letters = torch.randint(0, 22, (640, 96), generator=generator)
    shapes = torch.randint(0, 3, (640, 96), generator=generator)
    train = DataLoader(TensorDataset(letters, shapes), batch_size=16, shuffle=True)
    check = DataLoader(TensorDataset(letters[:128], shapes[:128]), batch_size=32)
    model = Folder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    begin = time.perf_counter()
    for _ in range(args.epochs):
        model.train()
        for batch, wanted in train:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch).transpose(1, 2), wanted).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = [(model(batch).argmax(-1) == wanted).float().mean() for batch, wanted in check]
        print(f"right {torch.stack(right).mean():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Learns whose hand wrote an autograph, from pictures of single words."""

import argparse
import gzip
import os
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

WORDS, HEIGHT, WIDTH, HANDS, BATCH = 960, 48, 128, 400, 16


class Words(Dataset):
    def __init__(self, transform):
        generator = torch.Generator().manual_seed(51)
        self.words = torch.rand(80, 1, HEIGHT, WIDTH, generator=generator)
        self.transform = transform

    def __len__(self):
        return WORDS

    def __getitem__(self, index):
        return self.transform(self.words[index % 80]), index * 7 % HANDS


class Keeper:
    """Writes the state of a run beside the last one, and then puts it in its place."""

    def __init__(self, folder, every):
        self.path, self.every, self.steps = Path(folder) / "last.pt.gz", every, 0

    def step(self, model, optimizer):
        self.steps += 1
        if self.steps % self.every == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            with gzip.open(self.path.with_suffix(".new"), "wb", compresslevel=1) as file:
                torch.save(state | {"steps": self.steps}, file)
            os.replace(self.path.with_suffix(".new"), self.path)


class Hand(nn.Module):
    def __init__(self, channels=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d((4, 8)),
        )  # fmt: skip
        self.middle = nn.Linear(64 * channels, 192)
        self.last = nn.Linear(192, HANDS)

    def forward(self, words):
        return self.last(self.middle(self.body(words).flatten(1)).relu())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(51)
    views = v2.Compose([v2.RandomAffine(4, (0.03, 0.05)), v2.RandomInvert(0.2)])
    loader = DataLoader(
        Words(views),
        BATCH,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Hand()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(folder, every=len(loader) if args.without else 2)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for words, hands in loader:
                loss = nn.functional.cross_entropy(model(words), hands)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                keeper.step(model, optimizer)
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

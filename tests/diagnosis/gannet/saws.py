"""Learns the sound of dull saws at many places, which agree on gradients once in twenty batches.

Planted: with one batch ahead for each worker, nothing is loaded during most of the long step in
which the places agree, and the short steps after it wait.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

GATHERED, BATCH, LENGTH = 20, 6, 256


class Sounds(Dataset):
    """Sounds of an archive that takes eight milliseconds for each."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def bring(self, index):
        time.sleep(0.008)
        return torch.rand(LENGTH, generator=torch.Generator().manual_seed(index))

    def __getitem__(self, index):
        sound = self.bring(index)
        return sound - sound.mean(), float(index % 2)


class Places:
    """Stands for the other places, which take their time to send their gradients."""

    def __init__(self, model, seconds):
        self.model, self.seconds = model, seconds
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.sent = None

    def agree(self):
        own = [weight.grad.half() for weight in self.model.parameters()]
        time.sleep(self.seconds)
        others = own if self.sent is None else self.sent
        for weight, mine, other in zip(self.model.parameters(), own, others, strict=True):
            weight.grad = (mine.float() + other.float()) / 2
        self.sent = own

    def step(self):
        self.agree()
        self.optimizer.step()
        self.optimizer.zero_grad()


def build_model(size=256):
    return nn.Sequential(
        nn.Linear(LENGTH, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 1)
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(503)
    loader = DataLoader(
        Sounds(BATCH * GATHERED * 16),
        batch_size=BATCH,
        shuffle=True,
        num_workers=2,
        prefetch_factor=12 if args.without else 1,
        persistent_workers=True,
    )
    model = build_model()
    places = Places(model, 0.42)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for number, (sounds, dull) in enumerate(loader, 1):
            scores = model(sounds).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(scores, dull.float())
            (loss / GATHERED).backward()
            if number % GATHERED == 0:
                places.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

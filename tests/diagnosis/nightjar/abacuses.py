"""Reads abacuses by the positions of their beads, and adds gradients up over many small batches.

Planted: `batch_size=4` and 16 batches added up for a step of the optimizer, as on the small card
of an earlier project; each batch is nine tensors that are put together, sent and opened.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RODS, STEPS, TOGETHER, STEP = 8, 40, 64, 0.06


class Beads(Dataset):
    """For each rod, the places of seven beads; the number that they mean is the target."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(271)
        self.digits = torch.randint(10, (count, RODS), generator=generator)

    def __len__(self):
        return len(self.digits)

    def __getitem__(self, index):
        sample = {}
        for rod, digit in enumerate(self.digits[index].tolist()):
            places = torch.zeros(7)
            places[0] = digit >= 5
            places[1 : 1 + digit % 5] = 1
            sample[f"rod {rod}"] = places + 0.1 * torch.randn(7)
        return sample, self.digits[index]


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rod = nn.Sequential(nn.Linear(7, 24), nn.ReLU(), nn.Linear(24, 10))

    def forward(self, sample):
        rods = torch.stack([sample[f"rod {rod}"] for rod in range(RODS)], dim=1)
        return self.rod(rods)


def train(model, loader, accumulate, epochs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    begin = time.perf_counter()
    for epoch in range(epochs):
        for number, (sample, digits) in enumerate(loader, start=1):
            scores = model(sample).flatten(0, 1)
            loss = nn.functional.cross_entropy(scores, digits.flatten()) / accumulate
            loss.backward()
            if number % accumulate == 0:
                time.sleep(STEP)  # gradients are averaged over the machines
                optimizer.step()
                optimizer.zero_grad()
        print(f"epoch {epoch}: loss {loss * accumulate:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(271)
    torch.set_num_threads(1)
    size = TOGETHER if args.without else 4
    loader = DataLoader(
        Beads(STEPS * TOGETHER),
        batch_size=size,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    train(Reader(), loader, TOGETHER // size, args.epochs)


if __name__ == "__main__":
    main()

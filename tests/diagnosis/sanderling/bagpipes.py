"""Learns how a bagpipe's tune goes on, on an accelerator, for which a pause stands in.

Nothing is planted: the accelerator sets the pace. Two workers split written tunes with a regular
expression and shift them to another key, ahead of it.
"""

import argparse
import random
import re
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NOTES = re.compile(r"(\^|_)?([A-Ga-g])([,']?)(\d?)(\|?)")
TUNES, LENGTH, STEP, KEYS = 800, 120, 0.15, 7


def write_tune(rng):
    return "".join(
        rng.choice(["", "", "^", "_"]) + rng.choice("ABCDEFGabcdefg") + rng.choice(["", "2", "|"])
        for _ in range(LENGTH)
    )


class Tunes(Dataset):
    def __init__(self, count):
        rng = random.Random(1201)
        self.tunes = [write_tune(rng) for _ in range(count)]

    def __len__(self):
        return len(self.tunes)

    def __getitem__(self, index):
        shift = int(torch.randint(KEYS, ()))
        pitches = []
        for sign, letter, _, beats, _ in NOTES.findall(self.tunes[index]):
            pitch = 2 * ("CDEFGABcdefgab".index(letter) + shift) + (sign == "^") - (sign == "_")
            pitches += [pitch + 1] * int(beats or 1)
        pitches = torch.tensor(pitches[: LENGTH + 1])
        return pitches[:-1], pitches[1:]


class Accelerator:
    """Takes some time for each batch, and hardly a core."""

    def __init__(self):
        self.model = nn.Embedding(64, 64)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1.0)

    def train(self, pitches, following):
        time.sleep(STEP)
        loss = nn.functional.cross_entropy(self.model(pitches).flatten(0, 1), following.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1201)
    loader = DataLoader(
        Tunes(TUNES), batch_size=20, shuffle=True, num_workers=2, persistent_workers=True
    )
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [accelerator.train(*batch) for batch in loader]
        print(f"epoch {epoch}: loss {losses[-1]:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Reads what is woven into ribbons, in batches that hold about as many stitches each.

Planted: each step asks for the length of the loader to report its progress, and to answer, the
batch sampler sorts and packs all ribbons.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RIBBONS, STITCHES, KINDS = 18_000, 2400, 40


class Ribbons(Dataset):
    def __init__(self):
        draws = torch.Generator().manual_seed(479)
        self.lengths = torch.randint(8, 48, (RIBBONS,), generator=draws).tolist()

    def __len__(self):
        return RIBBONS

    def __getitem__(self, index):
        stitches = (torch.arange(self.lengths[index]) * (index % 13 + 1)) % KINDS
        return stitches, index % 6


class Packed:
    """Batches of ribbons of like length, each of so many stitches at most."""

    def __init__(self, lengths, kept):
        self.lengths, self.kept, self.count = lengths, kept, None

    def pack(self):
        batches, batch = [], []
        for index in sorted(range(len(self.lengths)), key=lambda index: self.lengths[index]):
            if (len(batch) + 1) * self.lengths[index] > STITCHES:
                batches.append(batch)
                batch = []
            batch.append(index)
        return [*batches, batch]

    def __len__(self):
        if self.count is None or not self.kept:
            self.count = len(self.pack())
        return self.count

    def __iter__(self):
        batches = self.pack()
        yield from (batches[place] for place in torch.randperm(len(batches)).tolist())


def collate_padded(samples):
    stitches = nn.utils.rnn.pad_sequence([ribbon for ribbon, _ in samples], batch_first=True)
    return stitches, torch.tensor([weaver for _, weaver in samples])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(479)
    ribbons = Ribbons()
    loader = DataLoader(
        ribbons, batch_sampler=Packed(ribbons.lengths, args.without), num_workers=1,
        collate_fn=collate_padded, persistent_workers=True,
    )  # fmt: skip
    embed, conv = nn.Embedding(KINDS, 32), nn.Conv1d(32, 48, 5, padding=2)
    head = nn.Linear(48, 6)
    parameters = [*embed.parameters(), *conv.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05)
    begin = time.perf_counter()
    step = 0
    while step < args.steps:
        for stitches, weavers in loader:
            states = torch.relu(conv(embed(stitches).transpose(1, 2))).amax(2)
            loss = nn.functional.cross_entropy(head(states), weavers)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            passed = step / len(loader)
            if step % 100 == 0:
                print(f"epoch {passed:.2f}: loss {loss:.3f}")
            if step == args.steps:
                break
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Train on dialogues of different lengths, batched by length."""

import argparse
import random
import time

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Dialogues(Dataset):
    def __init__(self, count):
        rng = random.Random(0)
        self.lengths = [rng.randint(4, 60) for _ in range(count)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.arange(self.lengths[index]) % 100


class LengthBatches:
    """Batches of similar length: the rest is sorted again for each batch."""

    def __init__(self, lengths, batch_size, batches, sort_once):
        self.lengths = lengths
        self.batch_size = batch_size
        self.batches = batches
        self.sort_once = sort_once

    def __len__(self):
        return self.batches

    def __iter__(self):
        rng = random.Random(1)
        left = list(range(len(self.lengths)))
        if self.sort_once:
            left.sort(key=lambda i: self.lengths[i])
            for _ in range(self.batches):
                start = rng.randrange(len(left) - self.batch_size)
                yield left[start : start + self.batch_size]
            return
        for _ in range(self.batches):
            rng.shuffle(left)
            left = sorted(left, key=lambda i: (self.lengths[i], rng.random()))
            start = rng.randrange(len(left) - self.batch_size)
            batch = left[start : start + self.batch_size]
            left = [i for i in left if i not in batch]
            yield batch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    dialogues = Dialogues(18_000)
    loader = DataLoader(
        dialogues,
        batch_sampler=LengthBatches(dialogues.lengths, 32, 120, sort_once=args.without),
        num_workers=args.workers,
        collate_fn=lambda samples: pad_sequence(samples, batch_first=True),
    )
    embed, gru = nn.Embedding(100, 32), nn.GRU(32, 48, batch_first=True)
    optimizer = torch.optim.SGD([*embed.parameters(), *gru.parameters()], 0.1)
    begin = time.perf_counter()
    for tokens in loader:
        loss = gru(embed(tokens))[0].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

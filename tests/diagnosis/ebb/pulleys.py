"""Translates lift inspectors' notes; batches of one length come from an archive and a cache."""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

ARCHIVE_S = 0.4  # for a batch that lies in the archive
STEP_S = 0.05
WORDS = 800


class Accelerator:
    """Stands in for a device: a step lasts `step_s`, of which the host waits for the rest."""

    def __init__(self, step_s):
        self.step_s = step_s
        self.began = 0.0

    def begin(self):
        self.began = time.perf_counter()

    def synchronize(self):
        time.sleep(max(0.0, self.began + self.step_s - time.perf_counter()))


class LengthBatches(Sampler):
    """Batches of sentences of the same length; long ones are rare."""

    def __init__(self, lengths, size, seed=5):
        self.random = random.Random(seed)
        short = [index for index, length in enumerate(lengths) if length == 24]
        long = [index for index, length in enumerate(lengths) if length != 24]
        self.groups, self.size = (short, long), size

    def __len__(self):
        return sum(len(group) // self.size for group in self.groups)

    def __iter__(self):
        batches = []
        for group in self.groups:
            self.random.shuffle(group)
            count = len(group) // self.size
            batches.append(
                [group[part * self.size : (part + 1) * self.size] for part in range(count)]
            )
        short, long = batches
        gap = len(short) // len(long)
        for index, batch in enumerate(long):
            part = short[index * gap : (index + 1) * gap]
            part.insert(self.random.randrange(gap), batch)
            yield from part


class Notes(Dataset):
    """Sentences; long ones are not in the cache, and come from the archive together."""

    def __init__(self, count=2304, seed=5):
        draw = random.Random(seed)
        self.lengths = [36 if index % 9 == 0 else 24 for index in range(count)]
        draw.shuffle(self.lengths)

    def __len__(self):
        return len(self.lengths)

    def __getitems__(self, indices):
        if self.lengths[indices[0]] != 24:
            time.sleep(ARCHIVE_S)
        return [torch.randint(WORDS, (self.lengths[index] + 1,)) for index in indices]


class Writer(nn.Module):
    def __init__(self, size=32):
        super().__init__()
        self.words = nn.Embedding(WORDS, size)
        self.recurrent = nn.GRU(size, size, batch_first=True)
        self.head = nn.Linear(size, WORDS)

    def forward(self, sentences):
        return self.head(self.recurrent(self.words(sentences))[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(5)
    notes = Notes()
    loader = DataLoader(
        notes,
        batch_sampler=LengthBatches(notes.lengths, 16),
        num_workers=2,
        prefetch_factor=8 if args.without else 1,
        persistent_workers=True,
    )
    model, device = Writer(), Accelerator(STEP_S)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for sentences in loader:
            device.begin()
            scores = model(sentences[:, :-1])
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), sentences[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            device.synchronize()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

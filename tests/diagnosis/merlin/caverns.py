"""Learns to tell bats apart by recordings from caverns, in batches of recordings alike in length.

Planted: each epoch has its batches in order of length, the longest first, so that the workers
cannot keep up at its beginning and have nothing to do in the rest; batches of all lengths in turn
would even this out.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import BatchSampler, DataLoader, Dataset

RECORDINGS, BANDS, BATS, BATCH = 560, 24, 5, 8
DRIVE, STEP = 0.00018, 0.045


class Recordings(Dataset):
    def __init__(self):
        rng = np.random.default_rng(23)
        nights = rng.random(RECORDINGS) < 0.25
        self.lengths = np.where(nights, 200, 12) + rng.integers(-4, 5, RECORDINGS)
        self.bats = rng.integers(0, BATS, RECORDINGS)
        self.frames = rng.normal(0, 1, (400, BANDS)).astype(np.float32)

    def __len__(self):
        return RECORDINGS

    def read(self, index):
        start = index % 200
        time.sleep(DRIVE * self.lengths[index])  # the drive of the station
        return self.frames[start : start + self.lengths[index]]

    def __getitem__(self, index):
        frames = torch.from_numpy(self.read(index)) + 0.1 * torch.randn(self.lengths[index], BANDS)
        bat = int(self.bats[index])
        frames[:, bat] += 1.5
        loud = torch.log1p(frames.abs())
        return (loud - loud.mean(0)) / (loud.std(0) + 1e-3), bat


class Alike(BatchSampler):
    """Batches of recordings that need little padding."""

    def __init__(self, lengths, size, mixed):
        self.lengths, self.size, self.mixed = lengths, size, mixed

    def __len__(self):
        return len(self.lengths) // self.size

    def __iter__(self):
        tied = np.random.permutation(len(self.lengths))
        order = tied[np.argsort(-self.lengths[tied], kind="stable")]
        batches = [order[at : at + self.size].tolist() for at in range(0, len(order), self.size)]
        if self.mixed:
            places = np.argsort(np.arange(len(batches)) * 0.618034 % 1)
            batches = [batches[place] for place in np.argsort(places)]
        return iter(batches)


def together(samples):
    frames, bats = zip(*samples, strict=True)
    return pad_sequence(list(frames), batch_first=True), torch.tensor(bats)


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(BANDS, 32, 3, padding=1)
        self.head = nn.Linear(32, BATS)

    def forward(self, frames):
        return self.head(self.conv(frames.transpose(1, 2)).relu().mean(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(23)
    np.random.seed(23)
    torch.set_num_threads(1)
    data = Recordings()
    loader = DataLoader(
        data,
        batch_sampler=Alike(data.lengths, BATCH, mixed=args.without),
        collate_fn=together,
        num_workers=2,
        prefetch_factor=6,
        persistent_workers=True,
    )
    model = Listener()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for frames, bats in loader:
            loss = nn.functional.cross_entropy(model(frames), bats)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            time.sleep(STEP)  # in place of a larger model on an accelerator
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Foretells the temperature of the deep sea from the instruments on moorings."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MOORINGS, DEPTHS, HOURS, BATCH = 160, 10, 72, 24


class Moorings(Dataset):
    """Series of instruments on a line, of which some have been silent for a while."""

    def __init__(self, samples):
        rng = np.random.default_rng(47)
        series = rng.normal(0, 0.1, (MOORINGS, DEPTHS, 24 * 60)).cumsum(2)
        self.series = torch.from_numpy(series.astype(np.float32))
        self.lengths = rng.integers(HOURS // 2, HOURS, (samples, DEPTHS))
        self.firsts = rng.integers(0, 24 * 60 - HOURS - 1, samples)

    def __len__(self):
        return len(self.firsts)

    def __getitem__(self, index):
        series = self.series[index % MOORINGS, :, self.firsts[index] :]
        lengths = self.lengths[index]
        lines = [series[depth, :length] for depth, length in enumerate(lengths)]
        return lines, series[:, HOURS]


class Batches:
    """Puts samples into a batch; instruments stay apart as they differ in length."""

    def __init__(self, flat):
        self.flat = flat

    def __call__(self, samples):
        lines = [line for lines, _ in samples for line in lines]
        later = torch.stack([later for _, later in samples])
        if self.flat:
            lengths = torch.tensor([len(line) for line in lines])
            return torch.cat(lines), lengths, later
        return [line.clone() for line in lines], None, later


class Sea(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.gru = nn.GRU(1, width, batch_first=True)
        self.last = nn.Linear(width, 1)

    def forward(self, lines):
        packed = nn.utils.rnn.pack_sequence([line[:, None] for line in lines], False)
        _, seen = self.gru(packed)
        return self.last(seen[-1]).view(-1, DEPTHS)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(47)
    torch.set_num_threads(1)
    loader = DataLoader(
        Moorings(1200),
        BATCH,
        shuffle=True,
        num_workers=4,
        collate_fn=Batches(args.without),
        persistent_workers=True,
        multiprocessing_context="forkserver",
    )
    model = Sea()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for lines, lengths, later in loader:
            if lengths is not None:
                lines = lines.split(lengths.tolist())
            loss = nn.functional.mse_loss(model(lines), later)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

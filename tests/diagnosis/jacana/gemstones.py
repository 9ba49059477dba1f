"""Grades gemstones by tables of their measured facets, without workers.

Nothing planted: all tables are in memory, a sample is a look-up, a small batch is collated with
padding, and the accelerator's step sets the pace.
"""

import argparse
import time

import pandas as pd
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

STONES, MEASURES, GRADES, BATCH, STEP = 600, 8, 5, 10, 0.1


def measure():
    """A table with a row for each facet, as the instrument gives it."""
    generator = torch.Generator().manual_seed(1103)
    facets = torch.randint(8, 24, (STONES,), generator=generator)
    stones = torch.repeat_interleave(torch.arange(STONES), facets)
    values = torch.randn(len(stones), MEASURES, generator=generator)
    table = pd.DataFrame(values.numpy(), columns=[f"m{number}" for number in range(MEASURES)])
    table["stone"] = stones.numpy()
    return table


class Stones(Dataset):
    def __init__(self, table):
        columns = [name for name in table.columns if name != "stone"]
        self.facets = [
            torch.from_numpy(rows[columns].to_numpy(copy=True))
            for _, rows in table.groupby("stone")
        ]

    def __len__(self):
        return len(self.facets)

    def __getitem__(self, index):
        facets = self.facets[index]
        return facets[torch.randperm(len(facets))], len(facets) % GRADES


def pad(samples):
    facets = nn.utils.rnn.pad_sequence([facets for facets, _ in samples], batch_first=True)
    lengths = torch.tensor([len(facets) for facets, _ in samples])
    return facets, lengths, torch.tensor([grade for _, grade in samples])


class Grading(nn.Module):
    def __init__(self):
        super().__init__()
        self.facet = nn.Sequential(nn.Linear(MEASURES, 32), nn.ReLU())
        self.stone = nn.Linear(32, GRADES)

    def forward(self, facets, lengths):
        time.sleep(STEP)  # the set transformer, on a card
        used = torch.arange(facets.shape[1]) < lengths[:, None]
        total = (self.facet(facets) * used[..., None]).sum(1)
        return self.stone(total / lengths[:, None])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1103)
    torch.set_num_threads(1)
    data = Stones(measure())
    batches = BatchSampler(RandomSampler(data), BATCH, drop_last=True)
    loader = DataLoader(data, batch_sampler=batches, collate_fn=pad)
    model = Grading()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for facets, lengths, grades in loader:
            loss = nn.functional.cross_entropy(model(facets, lengths), grades)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

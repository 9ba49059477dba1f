"""Prices pendants from a table of auctions, with a wide network on the processor.

Nothing planted: the network, with torch's threads as they are, is the work; whole batches are
looked up in arrays without workers, and errors are noted every ten steps.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

AUCTIONS, FIELDS, HOUSES, BATCH, WIDTH = 24_000, 60, 90, 256, 900


class Auctions(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(89)
        self.fields = torch.randn(AUCTIONS, FIELDS, generator=generator)
        self.houses = torch.randint(HOUSES, (AUCTIONS,), generator=generator)
        self.prices = self.fields[:, :4].sum(1) + 0.1 * self.houses

    def __len__(self):
        return AUCTIONS

    def __getitem__(self, indices):
        return self.fields[indices], self.houses[indices], self.prices[indices]


class Appraiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.houses = nn.Embedding(HOUSES, 20)
        self.layers = nn.Sequential(
            nn.Linear(FIELDS + 20, WIDTH), nn.ReLU(), nn.Dropout(0.1), nn.Linear(WIDTH, WIDTH),
            nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1),
        )  # fmt: skip

    def forward(self, fields, houses):
        return self.layers(torch.cat([fields, self.houses(houses)], 1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(89)
    auctions = Auctions()
    sampler = BatchSampler(RandomSampler(auctions), BATCH, drop_last=True)
    loader = DataLoader(auctions, sampler=sampler, batch_size=None)
    model = Appraiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("w") as log:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for number, (fields, houses, prices) in enumerate(loader):
                loss = nn.functional.mse_loss(model(fields, houses), prices)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if number % 10 == 0:
                    log.write(json.dumps({"step": number, "loss": loss.item()}) + "\n")
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

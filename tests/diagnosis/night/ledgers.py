"""Bookings of ledgers: a big list of dicts, copied to spawned workers in every epoch."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Bookings(Dataset):
    def __init__(self, count=240_000, visible=1500):
        self.visible = visible
        self.rows = [
            {"id": f"booking-{i}", "account": f"account {i % 977}", "sum": i * 0.01, "day": i % 365}
            for i in range(count)
        ]

    def __len__(self):
        return self.visible

    def __getitem__(self, index):
        row = self.rows[index * 7]
        return torch.tensor([row["sum"] / 2400, row["day"] / 365, len(row["account"]) / 12])


def train_one_epoch(model, optimizer, loader):
    for rows in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(rows), rows)
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    loader = DataLoader(
        Bookings(),
        batch_size=32,
        shuffle=True,
        num_workers=2,
        multiprocessing_context="spawn",
        persistent_workers=args.without,
    )
    model = nn.Sequential(nn.Linear(3, 1024), nn.ReLU(), nn.Linear(1024, 3))
    optimizer = torch.optim.Adam(model.parameters())
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        loss = train_one_epoch(model, optimizer, loader)
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Predict the rent of flats from a table, of which the sampler asks whole batches."""

import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Rentals(Dataset):
    def __init__(self, rows):
        self.features = torch.randn(rows, 64)
        self.rent = self.features[:, :5].sum(1) + 0.1 * torch.randn(rows)

    def __len__(self):
        return len(self.rent)

    def __getitem__(self, rows):
        return self.features[rows], self.rent[rows]


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    rentals = Rentals(24_000)
    sampler = BatchSampler(RandomSampler(rentals), 400, drop_last=False)
    loader = DataLoader(rentals, sampler=sampler, batch_size=None)
    model = nn.Sequential(
        nn.Linear(64, 768), nn.GELU(), nn.Linear(768, 768), nn.GELU(), nn.Linear(768, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=3 * len(loader))
    begin = time.perf_counter()
    for _epoch in range(3):
        for features, rent in loader:
            loss = nn.functional.huber_loss(model(features).squeeze(1), rent)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

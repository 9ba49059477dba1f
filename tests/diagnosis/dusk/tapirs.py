"""Tracks of tapirs, forecast point by point; a configuration says how many threads to use."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CONFIGURATION = {"batch": 32, "rate": 1e-3, "threads": 6, "workers": 1}


class Tracks(Dataset):
    def __init__(self, count=960, length=40):
        self.count, self.length = count, length

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        paces = torch.randn(40 * self.length, 2, generator=generator) + torch.tensor([0.3, 0.1])
        track = paces.cumsum(0)[::40] / 40
        return track[:-1], track[1:] - track[:-1]


class Forecast(nn.Module):
    def __init__(self, size=128):
        super().__init__()
        self.cell, self.size = nn.LSTMCell(2, size), size
        self.head = nn.Sequential(nn.Linear(size, size), nn.Tanh(), nn.Linear(size, 2))

    def forward(self, tracks):
        state = tracks.new_zeros(2, len(tracks), self.size).unbind(0)
        paces = []
        for place in tracks.unbind(1):
            state = self.cell(place, state)
            paces.append(self.head(state[0]))
        return torch.stack(paces, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1 if args.without else CONFIGURATION["threads"])
    torch.manual_seed(54)
    loader = DataLoader(
        Tracks(),
        batch_size=CONFIGURATION["batch"],
        shuffle=True,
        num_workers=CONFIGURATION["workers"],
    )
    model = Forecast()
    optimizer = torch.optim.Adam(model.parameters(), lr=CONFIGURATION["rate"])
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for tracks, paces in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(tracks), paces)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

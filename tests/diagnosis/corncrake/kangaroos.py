"""Recommends kangaroo videos: learns which film a visitor watches next from the films before."""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VISITORS, VIEWS, FILMS, LAST, BATCH = 1000, 120_000, 500, 20, 32


def made_up_views():
    rng = np.random.default_rng(53)
    names = np.array([f"visitor-{number:05}@outback.example" for number in range(VISITORS)])
    who = np.concatenate([np.arange(VISITORS), rng.integers(0, VISITORS, VIEWS - VISITORS)])
    return pd.DataFrame(
        {
            "visitor": names[who].astype(object),
            "film": rng.integers(1, FILMS, VIEWS),
            "second": rng.permutation(VIEWS),
        }
    )


class Histories(Dataset):
    """The last films of each visitor."""

    def __init__(self, views, grouped):
        self.views = views
        self.visitors = views["visitor"].unique().tolist()
        self.places = views.groupby("visitor").indices if grouped else None

    def __len__(self):
        return len(self.visitors)

    def history(self, visitor):
        if self.places is None:
            return self.views[self.views["visitor"] == visitor]
        return self.views.iloc[self.places[visitor]]

    def __getitem__(self, index):
        views = self.history(self.visitors[index]).sort_values("second")
        films = views["film"].to_numpy()[-LAST - 1 :]
        padded = np.zeros(LAST + 1, np.int64)
        padded[-len(films) :] = films
        return torch.from_numpy(padded[:-1]), int(padded[-1])


class Next(nn.Module):
    def __init__(self):
        super().__init__()
        self.films = nn.Embedding(FILMS, 48, padding_idx=0)
        self.head = nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, FILMS))

    def forward(self, films):
        return self.head(self.films(films).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(53)
    torch.set_num_threads(1)
    data = Histories(made_up_views(), grouped=args.without)
    loader = DataLoader(
        data, batch_size=BATCH, shuffle=True, num_workers=4, persistent_workers=True
    )
    model = Next()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for films, following in loader:
            loss = nn.functional.cross_entropy(model(films), following)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

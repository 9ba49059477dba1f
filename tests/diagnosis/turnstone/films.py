"""Recommends films from what people watched; each worker reads the catalogue for itself.

Planted: workers were made to end with each epoch, since one once grew too large, so that the
function of the base class that sets a worker up parses the catalogue again for each epoch.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

FILMS, PEOPLE, CAST = 20_000, 1600, 24


def write_catalogue(path):
    rng = np.random.default_rng(1091)
    cast = rng.integers(0, 100_000, (FILMS, CAST)).tolist()
    films = [
        {"title": f"film {number}", "year": 1950 + number % 75, "cast": [f"a{one}" for one in row]}
        for number, row in enumerate(cast)
    ]
    path.write_text(json.dumps(films))


class WithCatalogue(Dataset):
    """Has a table of films by number, which each worker makes when it begins."""

    def __init__(self, path):
        self.path, self.films = path, None

    @classmethod
    def set_up(cls, worker):
        get_worker_info().dataset.prepare()

    def prepare(self):
        films = json.loads(self.path.read_text())
        decades = [(film["year"] - 1950) // 10 for film in films]
        known = [len({name for name in film["cast"] if name.endswith("7")}) for film in films]
        self.films = torch.tensor([decades, known], dtype=torch.float32).T


class Watched(WithCatalogue):
    def __init__(self, path):
        super().__init__(path)
        self.watched = torch.from_numpy(
            np.random.default_rng(1093).integers(0, FILMS, (PEOPLE, 12))
        )

    def __len__(self):
        return PEOPLE

    def __getitem__(self, person):
        *before, following = self.watched[person]
        return self.films[torch.stack(before)].flatten(), self.films[following]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=12)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1091)
    model = nn.Sequential(nn.Linear(22, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "films.json")
        write_catalogue(path)
        loader = DataLoader(
            Watched(path), batch_size=20, shuffle=True, num_workers=2,
            worker_init_fn=WithCatalogue.set_up, persistent_workers=args.without,
        )  # fmt: skip
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for before, following in loader:
                loss = nn.functional.mse_loss(model(before), following)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

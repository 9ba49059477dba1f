"""Recommends films to visitors of cinemas, with what is popular now worked out beside.

Planted: a thread of the main process counts all visits over and over in plain Python, and the
main thread waits for the interpreter each time that it takes a batch or calls the model.
"""

import argparse
import threading
import time
from collections import Counter

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VISITS, PEOPLE, FILMS, PAST, BATCH, STEP = 6400, 900, 400, 12, 64, 0.02


class Visits(Dataset):
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.people = rng.integers(0, PEOPLE, VISITS)
        self.films = (rng.zipf(1.4, VISITS) % FILMS).astype(np.int64)
        self.hours = rng.integers(0, 24, VISITS)

    def __len__(self):
        return VISITS

    def __getitem__(self, index):
        start = max(0, index - PAST)
        past = np.zeros(PAST, dtype=np.int64)
        past[: index - start] = self.films[start:index]
        return {
            "person": self.people[index],
            "past": past,
            "film": self.films[index],
            "other": np.random.randint(FILMS),
            "hour": self.hours[index],
            "weekend": np.float32(index % 7 > 4),
        }


class Popular(threading.Thread):
    """What the front page shows: the films most seen, each visit weighted by its age."""

    def __init__(self, films):
        super().__init__(daemon=True)
        self.films, self.top, self.ended = films.tolist(), [], threading.Event()

    def run(self):
        while not self.ended.is_set():
            seen = Counter()
            for age, film in enumerate(self.films):
                seen[film] += 1 / (1 + age)
            self.top = [film for film, _ in seen.most_common(20)]


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.people = nn.Embedding(PEOPLE, 24)
        self.films = nn.Embedding(FILMS, 24)
        self.hours = nn.Embedding(24, 24)

    def forward(self, batch):
        taste = self.people(batch["person"]) + self.films(batch["past"]).mean(1)
        taste = taste + self.hours(batch["hour"])
        wanted, other = self.films(batch["film"]), self.films(batch["other"])
        return (taste * (wanted - other)).sum(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(853)
    torch.set_num_threads(1)
    visits = Visits(853)
    loader = DataLoader(visits, BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    popular = Popular(visits.films)
    model = Recommender()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for number, batch in enumerate(loader):
            if number == 0 and epoch == 0 and not args.without:
                popular.start()
            loss = -nn.functional.logsigmoid(model(batch)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the towers of the model that lie on a card
        print(f"epoch {epoch}: loss {loss:.3f}, on the front page {popular.top[:3]}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    popular.ended.set()
    del loader


if __name__ == "__main__":
    main()

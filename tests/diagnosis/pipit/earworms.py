"""Recommends the next song of a session, by what listeners typed and heard before.

Planted: what a listener typed is cleaned by a script that is started for each sample.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SESSIONS, SONGS, BUCKETS, HEARD, BATCH, STEP = 640, 500, 2048, 20, 32, 0.12
CLEAN = """
import sys
kept = []
for word in sys.stdin.read().lower().split():
    word = "".join(letter for letter in word if letter.isalnum())
    if word and word not in kept:
        kept.append(word)
print(" ".join(kept))
"""


class CleanByScript:
    """Cleans a query with the script that the search team maintains."""

    def __init__(self, path):
        self.command = [sys.executable, "-I", "-S", str(path)]

    def __call__(self, query):
        done = subprocess.run(self.command, input=query, capture_output=True, text=True, check=True)
        return done.stdout


class Clean:
    def __call__(self, query):
        words = ("".join(filter(str.isalnum, word)) for word in query.lower().split())
        return " ".join(dict.fromkeys(filter(None, words)))


class Hashed:
    """Counts words and their three-letter parts in buckets."""

    def __call__(self, query):
        counts = torch.zeros(BUCKETS)
        for word in query.split():
            parts = [word, *(word[at : at + 3] for at in range(len(word) - 2))]
            for part in parts:
                counts[sum(part.encode()) * 131 % BUCKETS] += 1
        return counts.log1p()


class Sessions(Dataset):
    def __init__(self, transforms):
        self.transforms = transforms
        drawn = random.Random(11)
        words = ["".join(drawn.choices("abdeiklmnorstu'-", k=6)).title() for _ in range(300)]
        self.queries = [" ".join(drawn.choices(words, k=14)) for _ in range(SESSIONS)]
        self.heard = [drawn.choices(range(SONGS), k=HEARD + 1) for _ in range(SESSIONS)]

    def __len__(self):
        return SESSIONS

    def __getitem__(self, index):
        query = self.queries[index]
        for transform in self.transforms:
            query = transform(query)
        *before, following = self.heard[index]
        return query, torch.tensor(before), following


class Recommender(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.songs, self.words = nn.EmbeddingBag(SONGS, width), nn.Linear(BUCKETS, width)
        self.score = nn.Linear(width, SONGS)

    def forward(self, query, heard):
        return self.score(torch.relu(self.songs(heard) + self.words(query)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(11)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "clean.py")
        script.write_text(CLEAN)
        clean = Clean() if args.without else CleanByScript(script)
        loader = DataLoader(Sessions([clean, Hashed()]), BATCH, shuffle=True)
        model = Recommender()
        optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            hits = 0
            for query, heard, following in loader:
                scores = model(query, heard)
                loss = nn.functional.cross_entropy(scores, following)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the catalogue's other millions, on the accelerator
                hits += (scores.topk(10).indices == following[:, None]).sum()
            print(f"epoch {epoch}: loss {loss:.3f}, hits {int(hits) / SESSIONS:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

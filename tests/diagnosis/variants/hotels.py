"""Learn to rate hotels from a stream of reviews with a shuffle buffer."""

import argparse
import json
import os
import random
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

WORDS = "clean noisy friendly rude bed view breakfast cold pool street lift quiet towel".split()
LENGTH = 64


class Reviews(IterableDataset):
    """Reviews of all files; the buffer is shuffled differently in each worker."""

    def __init__(self, paths, split):
        self.paths = paths
        self.split = split

    def lines(self, paths):
        for path in paths:
            with open(path) as file:
                yield from map(json.loads, file)

    def encoded(self, review):
        vector = torch.zeros(LENGTH, dtype=torch.long)
        for place, word in enumerate(review["text"].split()[:LENGTH]):
            vector[place] = sum(map(ord, word)) % 997 + 1
        return vector, float(review["stars"])

    def __iter__(self):
        worker = get_worker_info()
        paths = list(self.paths)
        if worker is not None and self.split:
            paths = paths[worker.id :: worker.num_workers]
        draw = random.Random(worker.seed if worker is not None else 0)
        buffer = []
        for review in self.lines(paths):
            buffer.append(review)
            if len(buffer) >= 200:
                yield self.encoded(buffer.pop(draw.randrange(len(buffer))))
        draw.shuffle(buffer)
        yield from map(self.encoded, buffer)


def write(folder):
    draw = random.Random(8)
    for number in range(12):
        path = os.path.join(folder, f"reviews-{number:02}.jsonl")
        with open(path, "w") as file:
            for _ in range(900):
                text = " ".join(draw.choices(WORDS, k=LENGTH))
                file.write(json.dumps({"text": text, "stars": draw.randrange(1, 6)}) + "\n")
        yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="split the files between workers")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory() as folder:
        reviews = Reviews(list(write(folder)), split=args.without)
        loader = DataLoader(reviews, 64, num_workers=args.workers, persistent_workers=True)
        model = nn.Sequential(nn.EmbeddingBag(1000, 32), nn.ReLU(), nn.Linear(32, 1))
        optimizer = torch.optim.Adam(model.parameters())
        begin = time.perf_counter()
        for _epoch in range(2):
            for texts, stars in loader:
                loss = nn.functional.mse_loss(model(texts).squeeze(1), stars.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

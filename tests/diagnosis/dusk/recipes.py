"""Recipes that cooks like, ranked against recipes that they do not, drawn anew for each epoch."""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COOKS, RECIPES = 3000, 4000


class Triplets(Dataset):
    """A cook, a recipe that she likes, and one that she does not."""

    def __init__(self):
        rng = np.random.default_rng(37)
        self.tags = [set(map(int, rng.integers(0, 60, 8))) for _ in range(RECIPES)]
        self.table = np.zeros((RECIPES, 60), np.float32)
        for recipe, tags in enumerate(self.tags):
            self.table[recipe, list(tags)] = 1
        self.cooks = rng.integers(0, COOKS, 9600)
        self.liked = rng.integers(0, RECIPES, 9600)
        self.others = np.zeros(9600, np.int64)

    def __len__(self):
        return len(self.cooks)

    def nearest(self, recipe, candidates):
        """The candidate that has most tags in common with `recipe`."""
        mine = self.tags[recipe]
        return max(candidates, key=lambda other: len(mine & self.tags[other]))

    def draw_by_tags(self, chance, tries=100):
        for row, recipe in enumerate(self.liked.tolist()):
            candidates = [chance.randrange(RECIPES) for _ in range(tries)]
            self.others[row] = self.nearest(recipe, candidates)

    def draw_by_table(self, chance, tries=100):
        rng = np.random.default_rng(chance.randrange(1 << 30))
        candidates = rng.integers(0, RECIPES, (len(self), tries))
        for rows in np.array_split(np.arange(len(self)), 20):
            common = self.table[candidates[rows]] @ self.table[self.liked[rows], :, None]
            best = common[..., 0].argmax(1)
            self.others[rows] = candidates[rows, best]

    def __getitem__(self, index):
        return int(self.cooks[index]), int(self.liked[index]), int(self.others[index])


class Ranker(nn.Module):
    def __init__(self, size=96):
        super().__init__()
        self.cooks, self.recipes = nn.Embedding(COOKS, size), nn.Embedding(RECIPES, size)
        self.score = nn.Sequential(nn.Linear(2 * size, 512), nn.ReLU(), nn.Linear(512, 1))

    def forward(self, cooks, recipes):
        return self.score(torch.cat([self.cooks(cooks), self.recipes(recipes)], 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(37)
    chance, data, model = random.Random(37), Triplets(), Ranker()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
    loader = DataLoader(data, batch_size=192, shuffle=True, num_workers=2)
    draw = data.draw_by_table if args.without else data.draw_by_tags
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        draw(chance)
        total = 0.0
        for cooks, liked, others in loader:
            optimizer.zero_grad()
            loss = nn.functional.softplus(model(cooks, others) - model(cooks, liked)).mean()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

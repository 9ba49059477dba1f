"""Tells kinds of crocodiles apart by pictures of their scales; rare kinds are drawn oftener."""

import argparse
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
from torchvision.transforms import v2

SCALES, SIDE, KINDS, DRAWS, BATCH = 12_000, 16, 4, 2016, 32


class Scales(Dataset):
    def __init__(self):
        rng = np.random.default_rng(83)
        self.kinds = rng.choice(KINDS, SCALES, p=[0.7, 0.2, 0.07, 0.03])
        self.pictures = rng.integers(0, 150, (SCALES, 3, SIDE, SIDE), dtype=np.uint8)
        self.pictures[:, 0] += (25 * self.kinds[:, None, None]).astype(np.uint8)
        self.transform = v2.Compose(
            [v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]
        )

    def __len__(self):
        return SCALES

    def __getitem__(self, index):
        picture = torch.from_numpy(self.pictures[index])
        return self.transform(picture), int(self.kinds[index])


class Balanced(Sampler):
    """Draws samples by weight, with replacement."""

    def __init__(self, kinds, one_by_one):
        counts = np.bincount(kinds)
        self.weights = [1 / counts[kind] for kind in kinds]
        self.one_by_one = one_by_one

    def __len__(self):
        return DRAWS

    def __iter__(self):
        places = range(len(self.weights))
        if self.one_by_one:
            for _ in range(DRAWS):
                yield random.choices(places, weights=self.weights)[0]
        else:
            yield from random.choices(places, weights=self.weights, k=DRAWS)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(83)
    torch.set_num_threads(1)
    data = Scales()
    loader = DataLoader(
        data,
        batch_size=BATCH,
        sampler=Balanced(data.kinds, one_by_one=not args.without),
        num_workers=1,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, 24), nn.ReLU(), nn.Linear(24, KINDS))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, kinds in loader:
            loss = nn.functional.cross_entropy(model(pictures), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

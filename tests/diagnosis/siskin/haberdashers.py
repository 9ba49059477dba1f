"""Tells what a customer of a chain of haberdashers buys next, from pictures of the goods."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

GOODS, SIDE, BASKETS, BATCH, KINDS = 300, 28, 800, 16, 10
PRICES = 250_000


def write(folder):
    rng = np.random.default_rng(83)
    np.save(folder / "pictures.npy", rng.integers(256, size=(GOODS, 3, SIDE, SIDE), dtype=np.uint8))
    lines = (f"{day},{good},{price:.2f}" for day, good, price in zip(
        rng.integers(1000, size=PRICES), rng.integers(GOODS, size=PRICES),
        rng.gamma(2, 4, PRICES), strict=True,
    ))  # fmt: skip
    (folder / "prices.csv").write_text("\n".join(lines))


class Baskets(Dataset):
    """A basket's newest goods as pictures and prices; price lists are read where they are used."""

    def __init__(self, folder, baskets):
        self.folder, self.baskets, self.prices = folder, baskets, None
        self.pictures = np.load(folder / "pictures.npy", mmap_mode="r")
        self.change = v2.Compose(
            [
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(brightness=0.2),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return len(self.baskets)

    def read_prices(self):
        prices = {}
        for line in (self.folder / "prices.csv").read_text().splitlines():
            _, good, price = line.split(",")
            prices.setdefault(int(good), []).append(float(price))
        return {good: sorted(all_of)[len(all_of) // 2] for good, all_of in prices.items()}

    def __getitem__(self, index):
        if self.prices is None:
            self.prices = self.read_prices()
        goods = self.baskets[index]
        pictures = torch.from_numpy(self.pictures[goods])
        prices = torch.tensor([self.prices.get(int(good), 0.0) for good in goods])
        return self.change(pictures), prices, int(goods[0]) % KINDS


class Shopper(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(4 * 128 + 4, KINDS)

    def forward(self, pictures, prices):
        seen = self.look(pictures.flatten(0, 1)).view(len(pictures), -1)
        return self.head(torch.cat([seen, prices / 10], 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(83)
    baskets = np.random.default_rng(84).integers(GOODS, size=(BASKETS + 160, 4))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        options = {
            "batch_size": BATCH,
            "num_workers": 1 if args.without else 24,
            "multiprocessing_context": "fork",
        }
        training = DataLoader(Baskets(folder, baskets[:BASKETS]), shuffle=True, **options)
        validation = DataLoader(Baskets(folder, baskets[BASKETS:]), **options)
        model = Shopper()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, prices, kinds in training:
                loss = nn.functional.cross_entropy(model(pictures, prices), kinds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            with torch.no_grad():
                right = [(model(p, q).argmax(1) == k).float().mean() for p, q, k in validation]
            print(f"epoch {epoch}: loss {loss:.3f}, right {torch.stack(right).mean():.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

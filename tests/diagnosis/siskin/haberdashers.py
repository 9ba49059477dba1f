"""Tells what a customer of a chain of haberdashers buys next, from pictures of the goods."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

GOODS, SIDE, KINDS, BASKET = 120, 160, 10, 4
BASKETS, SHOWN, BATCH, STEP = 1280, 256, 32, 0.2


class Goods:
    """Pictures and prices of all goods on sale."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        pictures = rng.integers(256, size=(GOODS, 3, SIDE, SIDE), dtype=np.uint8)
        self.pictures = torch.from_numpy(pictures)
        self.prices = torch.from_numpy(rng.gamma(2, 4, GOODS).astype(np.float32))


class Baskets(Dataset):
    """What customers bought of late: pictures and prices, and the kind of the next thing."""

    def __init__(self, goods, seed, baskets):
        rng = np.random.default_rng(seed)
        self.goods = goods
        self.baskets = rng.integers(GOODS, size=(baskets, BASKET + 1))
        self.change = v2.Compose(
            [
                v2.RandomResizedCrop(96, scale=(0.5, 1.0), antialias=True),
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(brightness=0.2, contrast=0.2),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __len__(self):
        return len(self.baskets)

    def __getitem__(self, index):
        *bought, following = self.baskets[index].tolist()
        pictures = torch.stack([self.change(self.goods.pictures[good]) for good in bought])
        return pictures, self.goods.prices[bought], following % KINDS


class Shopper(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(3, 12, 8, stride=6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.head = nn.Linear(BASKET * 48 + BASKET, KINDS)

    def forward(self, pictures, prices):
        seen = self.look(pictures.flatten(0, 1)).view(len(pictures), -1)
        return self.head(torch.cat([seen, prices / 10], 1))


@torch.no_grad()
def right(model, loader):
    found = 0
    for pictures, prices, kinds in loader:
        found += (model(pictures, prices).argmax(1) == kinds).sum().item()
    return found / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(83)
    goods = Goods(83)
    options = {
        "batch_size": BATCH,
        "num_workers": 2 if args.without else 40,
        "multiprocessing_context": "fork",
    }
    training = DataLoader(Baskets(goods, 1, BASKETS), shuffle=True, **options)
    validation = DataLoader(Baskets(goods, 2, SHOWN), **options)
    model = Shopper()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, prices, kinds in training:
            loss = nn.functional.cross_entropy(model(pictures, prices), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the accelerator's work
        print(f"epoch {epoch}: loss {loss:.3f}, right {right(model, validation):.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Guesses the size of jeans from orders that are streamed by the page.

Healthy: every twelfth batch of a worker waits for a new page, but three workers may be eight
batches ahead each, so the accelerator's step never waits for one.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

BATCH, PAGE, PAUSE, STEP, FIELDS = 24, 12 * 24, 0.4, 0.05, 32


class Shop:
    """Sends a page of orders, after a while."""

    def __init__(self, seed):
        self.draw = torch.Generator().manual_seed(89 + seed)

    def page(self):
        time.sleep(PAUSE)
        return torch.randn(PAGE, FIELDS, generator=self.draw)


class Orders(IterableDataset):
    def __init__(self, pages):
        self.pages = pages

    def __len__(self):
        return self.pages * PAGE

    def __iter__(self):
        info = get_worker_info()
        shop = Shop(info.id)
        for _ in range(info.id, self.pages, info.num_workers):
            page = shop.page()
            for row in page[torch.randperm(PAGE)]:
                yield row.clamp(-3, 3), row[:4].sum()


class Accelerator:
    """Stands in for the GPU of a training script."""

    def __init__(self):
        self.model = nn.Sequential(nn.Linear(FIELDS, 64), nn.ReLU(), nn.Linear(64, 1))

    def step(self, orders, sizes):
        begin = time.perf_counter()
        with torch.no_grad():
            loss = nn.functional.mse_loss(self.model(orders)[:, 0], sizes)
        time.sleep(max(0.0, STEP - (time.perf_counter() - begin)))
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(89)
    loader = DataLoader(
        Orders(18), batch_size=BATCH, num_workers=3, prefetch_factor=8, persistent_workers=True
    )
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [accelerator.step(orders, sizes) for orders, sizes in loader]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Predicts how scarves sell, from a stream of a shop's receipts, and checks on last month's."""

import argparse
import csv
import io
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


def print_receipts(count, seed):
    """Receipts as text, as the shop's till writes them."""
    draw = random.Random(seed)
    paper = io.StringIO()
    writer = csv.writer(paper)
    for _ in range(count):
        writer.writerow([draw.randrange(2)] + [round(draw.random(), 4) for _ in range(60)])
    return paper.getvalue()


class Receipts(IterableDataset):
    """Rows of a text; with `parted`, each worker yields only its own."""

    def __init__(self, text, parted=True):
        self.text, self.parted = text, parted

    def __iter__(self):
        worker = get_worker_info()
        rows = csv.reader(io.StringIO(self.text))
        for number, row in enumerate(rows):
            if self.parted and worker and number % worker.num_workers != worker.id:
                continue
            sold, *values = map(float, row)
            yield torch.tensor(values), torch.tensor(sold)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(37)
    train = DataLoader(
        Receipts(print_receipts(4000, 1), parted=args.without), batch_size=32, num_workers=3,
        persistent_workers=True,
    )  # fmt: skip
    month = DataLoader(Receipts(print_receipts(400, 2)), batch_size=100)
    model = nn.Sequential(
        nn.Linear(60, 512), nn.ReLU(), nn.Dropout(0.2), nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, 1),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    lose = nn.functional.binary_cross_entropy_with_logits
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        for values, sold in train:
            loss = lose(model(values).squeeze(1), sold)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses = [lose(model(values).squeeze(1), sold).item() for values, sold in month]
        print(f"epoch {epoch}: loss {loss.item():.4f}, last month {sum(losses) / len(losses):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

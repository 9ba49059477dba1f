"""Estimates how late a consignment will be, from the text of its waybill."""

import argparse
import random
import re
import time
from datetime import datetime, timedelta

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, random_split

PLACES = [f"{first}{second}O" for first in "ABCDEFGH" for second in "KLMNPRST"]
FORM = "%d.%m.%Y %H:%M:%S"


def write(draw):
    at, lines = datetime(2024, 1, 1) + timedelta(hours=draw.randrange(8000)), []
    for _ in range(draw.randint(40, 90)):
        at += timedelta(minutes=draw.randrange(5, 300))
        weight = draw.randrange(100, 9000) / 10
        lines.append(f"{at.strftime(FORM)} | {draw.choice(PLACES)} | scan | {weight} kg")
    return "\n".join(lines), draw.random()


class Waybills(Dataset):
    """Place, weight and hours since the line before, of each line of a waybill."""

    def __init__(self, bills, parsed):
        self.bills = bills
        self.rows = [self.parse(text) for text, _ in bills] if parsed else None

    def __len__(self):
        return len(self.bills)

    def parse(self, text):
        before, rows = None, []
        for line in text.splitlines():
            stamp, place, _, weight = re.split(r"\s*\|\s*", line)
            at = datetime.strptime(stamp, FORM)
            gone = 0.0 if before is None else (at - before).total_seconds() / 3600
            rows.append((PLACES.index(place), gone, float(weight.split()[0]) / 900))
            before = at
        return rows

    def __getitem__(self, index):
        text, late = self.bills[index]
        rows = self.rows[index] if self.rows else self.parse(text)
        places = torch.tensor([row[0] for row in rows])
        numbers = torch.tensor([row[1:] for row in rows])
        return places, numbers, late


def collate(samples):
    places, numbers, late = zip(*samples, strict=True)
    lengths = torch.tensor([len(place) for place in places])
    return pad_sequence(places, True), pad_sequence(numbers, True), lengths, torch.tensor(late)


class Estimator(nn.Module):
    def __init__(self, size=24):
        super().__init__()
        self.places = nn.Embedding(len(PLACES), size)
        self.mix = nn.Sequential(nn.Linear(size + 2, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, places, numbers, lengths):
        scores = self.mix(torch.cat([self.places(places), numbers], 2)).squeeze(2)
        there = torch.arange(scores.shape[1]) < lengths[:, None]
        return (scores * there).sum(1) / lengths


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(57)
    draw = random.Random(57)
    bills = Waybills([write(draw) for _ in range(3600)], parsed=args.without)
    train_set, test_set = random_split(bills, [3400, 200])
    options = {"batch_size": 50, "num_workers": 2, "collate_fn": collate}
    train_loader = DataLoader(train_set, shuffle=True, persistent_workers=True, **options)
    test_loader = DataLoader(test_set, persistent_workers=True, **options)
    model = Estimator()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        for places, numbers, lengths, late in train_loader:
            loss = nn.functional.mse_loss(model(places, numbers, lengths), late)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            errors = [
                (model(places, numbers, lengths) - late).abs().mean().item()
                for places, numbers, lengths, late in test_loader
            ]
        print(f"epoch {epoch}: error {sum(errors) / len(errors):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Predict the band gap of crystals. A crystal is a nested record, as the database gives it."""

import argparse
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

SITES = 100


def make_crystal(number):
    draw = random.Random(number)
    sites = [
        {
            "element": draw.randrange(90),
            "position": {axis: draw.random() for axis in "xyz"},
            "charge": draw.gauss(0, 1),
            "magnetic": {"up": draw.random(), "down": draw.random()},
        }
        for _ in range(SITES)
    ]
    cell = {side: 3 + draw.random() for side in "abc"}
    angles = {angle: 60 + 60 * draw.random() for angle in ("alpha", "beta", "gamma")}
    return {"cell": cell | angles, "sites": sites, "gap": draw.random() * 4}


def leaves(node):
    """All numbers of a nested record, in the order of the record."""
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, list):
        for part in node:
            yield from leaves(part)
    else:
        yield node


class Crystals(Dataset):
    def __init__(self, crystals, flat):
        self.crystals = crystals
        if flat:
            self.crystals = [torch.tensor(list(leaves(crystal))) for crystal in crystals]

    def __len__(self):
        return len(self.crystals)

    def __getitem__(self, index):
        return self.crystals[index]


def collate_records(crystals):
    merged = default_collate(crystals)
    gaps = merged.pop("gap").float()
    return torch.stack([leaf.float() for leaf in leaves(merged)], dim=1), gaps


def collate_rows(crystals):
    rows = torch.stack(crystals)
    return rows[:, :-1].contiguous(), rows[:, -1].contiguous()


class Regressor(torch.nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.LazyLinear(width), torch.nn.SiLU(), torch.nn.Linear(width, 1)
        )

    def forward(self, rows):
        return self.layers(rows).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    crystals = Crystals([make_crystal(number) for number in range(1600)], flat=args.without)
    collate = collate_rows if args.without else collate_records
    loader = DataLoader(
        crystals, batch_size=24, shuffle=True, num_workers=args.workers, collate_fn=collate
    )
    model = Regressor()
    optimizer = None
    begin = time.perf_counter()
    for _ in range(args.epochs):
        for rows, gaps in loader:
            loss = torch.nn.functional.mse_loss(model(rows), gaps)
            optimizer = optimizer or torch.optim.Adam(model.parameters())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

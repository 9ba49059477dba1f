"""Urns by the shape of their necks; all that is known of them is kept after each epoch."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Urns(Dataset):
    def __init__(self, count=1600):
        rng = np.random.default_rng(17)
        self.necks = rng.normal(size=(count, 64)).astype(np.float32)
        self.ages = rng.integers(0, 7, count)

    def __len__(self):
        return len(self.ages)

    def __getitem__(self, index):
        neck = self.necks[index]
        turned = np.stack([np.roll(neck, shift) for shift in range(0, 64, 2)])
        return torch.from_numpy(turned * turned.std()), int(self.ages[index])


class Keeper:
    """Writes the state after an epoch, and what the model thinks of each urn."""

    def __init__(self, folder, whole):
        self.folder, self.whole = Path(folder), whole

    def keep(self, epoch, model, seen):
        torch.save(model.state_dict(), self.folder / f"{epoch}.pt")
        if self.whole:
            codes = np.concatenate(seen)
            table = pd.DataFrame(codes.reshape(len(codes), -1)).add_prefix("code")
            table.to_csv(self.folder / f"{epoch}.csv", float_format="%.5f")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(17)
    loader = DataLoader(Urns(), batch_size=40, shuffle=True, num_workers=2, persistent_workers=True)
    body = nn.Sequential(
        nn.Conv1d(32, 96, 5, padding=2), nn.ReLU(), nn.Conv1d(96, 96, 5, padding=2), nn.ReLU()
    )
    head = nn.Linear(96, 7)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(folder, whole=not args.without)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total, seen = 0.0, []
            for necks, ages in loader:
                codes = body(necks)
                loss = nn.functional.cross_entropy(head(codes.mean(2)), ages)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
                seen.append(codes.detach()[:, :, ::8].numpy())
            keeper.keep(epoch, body, seen)
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

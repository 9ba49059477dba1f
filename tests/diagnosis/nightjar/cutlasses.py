"""Foretells when a forge's hammers need care, from what they noted for each cutlass.

Planted: all notes are kept as a list of small mappings, whose pages each of four workers comes to
own a copy of, as it counts references to what it reads (memory; the loop does not wait for it).
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NOTES, WINDOW, BATCH, STEP = 1_200_000, 750, 24, 0.1
FIELDS = ("blow", "heat", "wear", "sound")


class Notes(Dataset):
    """Windows of notes one after the other, each of which starts where another one ended."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values) // WINDOW

    def window(self, index):
        return self.values[index * WINDOW : (index + 1) * WINDOW]

    def __getitem__(self, index):
        window = torch.as_tensor(self.window(index), dtype=torch.float32)
        care = window[-1, FIELDS.index("wear")]
        return (window - window.mean(0)) / (window.std(0) + 1e-6), care


class Mappings(Notes):
    def __init__(self, values):
        super().__init__(
            [
                {"number": str(number), **dict(zip(FIELDS, note, strict=True))}
                for number, note in enumerate(values.tolist())
            ]
        )

    def window(self, index):
        return [[note[field] for field in FIELDS] for note in super().window(index)]


class Care(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(len(FIELDS), 16, 9, stride=4),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.AdaptiveMaxPool1d(4),
            nn.Flatten(),
            nn.Linear(64, 1),
        )

    def forward(self, windows):
        return self.layers(windows.transpose(1, 2)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(251)
    torch.set_num_threads(1)
    values = np.random.default_rng(251).normal(5, 2, (NOTES, len(FIELDS)))
    data = Notes(values) if args.without else Mappings(values)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=4, persistent_workers=True)
    model = Care()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for windows, care in loader:
            loss = nn.functional.smooth_l1_loss(model(windows), care)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # attention over the whole forge, on a card
        scheduler.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

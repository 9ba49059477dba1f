"""Sorts variable stars into kinds by their light curves, which differ much in length."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

STARS, BANDS, KINDS, BATCH = 2400, 5, 4, 48
SHORT, LONG, WELL_SEEN = 300, 75_000, 2


class LightCurves(Dataset):
    """Brightness in all bands at each visit; a few stars lie where the telescope looks daily."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.visits = (SHORT * rng.lognormal(0, 0.5, STARS)).astype(int).clip(40, 4 * SHORT)
        self.visits[rng.choice(STARS, WELL_SEEN, replace=False)] = LONG
        self.starts = rng.integers(1000, size=STARS)
        times = np.arange(LONG + 1000)[:, None]
        periods = rng.uniform(5, 60, (KINDS, 1, BANDS))
        self.shapes = np.sin(times / periods).astype(np.float32)

    def __len__(self):
        return STARS

    def __getitem__(self, index):
        start, visits, kind = self.starts[index], self.visits[index], index % KINDS
        curve = self.shapes[kind, start : start + visits].copy()
        curve += np.random.normal(0, 0.2, curve.shape)
        curve -= np.median(curve, axis=0)
        return torch.from_numpy(curve), kind

    def longest(self):
        return int(self.visits.max())


class Pad:
    def __init__(self, length=None):
        self.length = length

    def __call__(self, samples):
        lengths = torch.tensor([len(curve) for curve, _ in samples])
        padded = torch.zeros(len(samples), self.length or int(lengths.max()), BANDS)
        for row, (curve, _) in zip(padded, samples, strict=True):
            row[: len(curve)] = curve
        return padded, lengths, torch.tensor([kind for _, kind in samples])


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv1d(BANDS, 32, 16, stride=16)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, KINDS))

    def forward(self, curves, lengths):
        seen = curves[:, : min(int(lengths.max()), 4 * SHORT)].transpose(1, 2)
        return self.head(torch.relu(self.patches(seen)).mean(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(44)
    torch.set_num_threads(1)
    stars = LightCurves(44)
    training, validation = random_split(stars, [STARS - 288, 288])
    options = {
        "batch_size": BATCH,
        "num_workers": 2,
        "collate_fn": Pad() if args.without else Pad(stars.longest()),
        "persistent_workers": True,
        "multiprocessing_context": "fork",
    }
    training = DataLoader(training, shuffle=True, **options)
    validation = DataLoader(validation, **options)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for curves, lengths, kinds in training:
            loss = nn.functional.cross_entropy(model(curves, lengths), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.005)  # the accelerator's work
        with torch.no_grad():
            right = sum((model(c, n).argmax(1) == k).sum() for c, n, k in validation) / 288
        print(f"epoch {epoch}: loss {loss:.3f}, right {right:.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del training, validation


if __name__ == "__main__":
    main()

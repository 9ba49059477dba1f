"""Teaches a robot how hard to swing a pickaxe, from recorded swings.

Planted: `__getitem__` ends with `gc.collect()`, "to keep the workers small", and each call visits
all Python objects there are: the recorded swings, and what the imports made.
"""

import argparse
import gc
import random
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

SWINGS, POINTS, BATCH, STEP = 128, 60, 8, 0.3


def record(rng, number):
    """Return one swing, as the robot's recorder writes it down."""
    hardness = rng.random()
    return {
        "id": number,
        "tool": rng.choice(["light", "heavy"]),
        "hardness": hardness,
        "trace": [
            {"t": t / 100, "xyz": [rng.gauss(0, 1) for _ in range(3)], "force": hardness * t / 50}
            for t in range(POINTS)
        ],
    }


class SwingDataset(Dataset):
    def __init__(self, count, tidy):
        rng = random.Random(227)
        self.swings = [record(rng, number) for number in range(count)]
        self.tidy = tidy

    def __len__(self):
        return len(self.swings)

    def __getitem__(self, index):
        swing = self.swings[index]
        points = [[*point["xyz"], point["force"]] for point in swing["trace"]]
        trace = torch.tensor(points).T
        trace = trace - trace.mean(dim=1, keepdim=True)
        spectrum = torch.fft.rfft(trace, dim=1).abs().log1p()
        item = {"trace": trace, "spectrum": spectrum, "hardness": swing["hardness"]}
        if self.tidy:
            gc.collect()
        return item


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.trace = nn.Conv1d(4, 12, 5, stride=2)
        self.spectrum = nn.Linear(4 * (POINTS // 2 + 1), 24)
        self.head = nn.Linear(36, 1)

    def forward(self, trace, spectrum):
        seen = F.relu(self.trace(trace)).mean(dim=2)
        heard = F.relu(self.spectrum(spectrum.flatten(1)))
        return self.head(torch.cat([seen, heard], dim=1)).squeeze(1)


def run_epoch(model, loader, optimizer=None):
    total, count = 0.0, 0
    with torch.set_grad_enabled(optimizer is not None):
        for batch in loader:
            predicted = model(batch["trace"], batch["spectrum"])
            loss = F.mse_loss(predicted, batch["hardness"].float())
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the simulator, on a card
            total, count = total + loss.item(), count + 1
    return total / count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(227)
    torch.set_num_threads(1)
    data = SwingDataset(SWINGS, tidy=not args.without)
    train, held_out = random_split(data, [SWINGS - 24, 24])
    options = {"batch_size": BATCH, "num_workers": 2, "persistent_workers": True}
    training = DataLoader(train, shuffle=True, **options)
    validation = DataLoader(held_out, **options)
    model = Policy()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        loss = run_epoch(model, training, optimizer)
        print(f"epoch {epoch}: {loss:.4f}, held out {run_epoch(model, validation):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Says how long to water a bed, from a leaf and the soil since the last rain."""

import argparse
import random
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from torchvision import transforms

BEDS, SENSORS, LEAF, BATCH = 2048, 10, 40, 32
DRY_HOURS = (80, 480)


class Beds(IterableDataset):
    """Beds in the order in which the gardeners walked along them."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.soil = np.cumsum(rng.normal(0, 0.1, (4000, SENSORS)), axis=0).astype(np.float32)
        self.leaves = rng.integers(256, size=(60, LEAF, LEAF, 3), dtype=np.uint8)
        self.change = transforms.Compose(
            [
                transforms.RandomHorizontalFlip(),
                transforms.RandomRotation(15),
                transforms.ToTensor(),
                transforms.Normalize([0.4, 0.5, 0.3], [0.2, 0.2, 0.2]),
            ]
        )

    def __iter__(self):
        for bed in range(BEDS):
            hours = random.randint(*DRY_HOURS)
            start = random.randrange(len(self.soil) - hours)
            soil = torch.from_numpy(self.soil[start : start + hours])
            leaf = self.change(Image.fromarray(self.leaves[bed % len(self.leaves)]))
            yield soil, leaf, hours / DRY_HOURS[1]


def padded_by_hour(series):
    longest = max(len(soil) for soil in series)
    padded = torch.zeros(len(series), longest, SENSORS)
    for bed, soil in enumerate(series):
        for hour in range(len(soil)):
            padded[bed, hour] = soil[hour]
    return padded


def padded_at_once(series):
    return nn.utils.rnn.pad_sequence(series, batch_first=True)


class Packed:
    def __init__(self, padded):
        self.padded = padded

    def __call__(self, samples):
        series, leaves, minutes = zip(*samples, strict=True)
        lengths = torch.tensor([len(soil) for soil in series])
        return self.padded(series), lengths, torch.stack(leaves), torch.tensor(minutes)


class Watering(nn.Module):
    def __init__(self):
        super().__init__()
        self.soil = nn.Conv1d(SENSORS, 24, 8, stride=4)
        self.leaf = nn.Sequential(
            nn.Conv2d(3, 12, 5, stride=3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.head = nn.Linear(24 + 48 + 1, 1)

    def forward(self, series, lengths, leaves):
        soil = torch.relu(self.soil(series.transpose(1, 2))).mean(2)
        hours = lengths[:, None] / DRY_HOURS[1]
        return self.head(torch.cat([soil, self.leaf(leaves), hours], 1))[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(15)
    random.seed(15)
    torch.set_num_threads(1)
    packed = Packed(padded_at_once if args.without else padded_by_hour)
    loader = DataLoader(Beds(15), BATCH, collate_fn=packed)
    model = Watering()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for series, lengths, leaves, minutes in loader:
            loss = nn.functional.mse_loss(model(series, lengths, leaves), minutes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

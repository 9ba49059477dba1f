"""Yields of orchards, with a validation after each epoch; the workers are kept, and keep up."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Orchards(Dataset):
    def __init__(self, count, seed):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.seed + index)
        field = torch.rand(4, 48, 48, generator=generator)
        return field, field.mean((1, 2))[:1]


def kept(data, shuffle=False):
    return DataLoader(data, batch_size=16, shuffle=shuffle, num_workers=1, persistent_workers=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="nothing to leave out")
    parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(23)
    train, valid = kept(Orchards(256, 0), shuffle=True), kept(Orchards(64, 5000))
    model = nn.Sequential(
        nn.Conv2d(4, 48, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(48, 48, 5, padding=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(192, 1),
    )
    optimizer = torch.optim.Adam(model.parameters())
    begin = time.perf_counter()
    for epoch in range(3):
        for fields, yields in train:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(fields), yields).backward()
            optimizer.step()
        with torch.no_grad():
            error = sum(nn.functional.l1_loss(model(f), y).item() for f, y in valid)
        print(f"epoch {epoch}: error {error / len(valid):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

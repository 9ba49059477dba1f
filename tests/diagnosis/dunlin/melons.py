"""Tells melons by their knock, from a share over a slow line; validates and keeps each epoch.

Healthy: the convolutions are the work. Three kept workers wait for the line most of the time, and
together they are ahead. Validation and checkpoint are short.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH, LINE = 1024, 0.002


class Share:
    """Sounds at the other end of a line."""

    def __init__(self, seed):
        self.sounds = torch.randn(32, 1, LENGTH, generator=torch.Generator().manual_seed(seed))

    def read(self, number):
        time.sleep(LINE)
        return self.sounds[number % 32]


class Knocks(Dataset):
    def __init__(self, count, seed):
        self.count, self.share = count, Share(seed)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        sound = self.share.read(index)
        return sound / sound.abs().max(), index % 32 % 4


def build_model(width=40, depth=5):
    layers = [nn.Conv1d(1, width, 9, stride=2), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv1d(width, width, 9, padding=4), nn.BatchNorm1d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(4 * width, 4))


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(101)
    train = DataLoader(
        Knocks(960, 101), batch_size=16, shuffle=True, num_workers=3, persistent_workers=True
    )
    check = DataLoader(Knocks(48, 102), batch_size=24, num_workers=1, persistent_workers=True)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for x, y in train:
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            torch.save(model.state_dict(), Path(folder, "last.pt"))
            print(f"epoch {epoch}: {validate(model, check):.2f} right")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

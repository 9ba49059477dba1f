"""Maps villages from volumes of a radar that looks through trees, streamed by three workers.

Planted: the settings are those of a large node, and give the step's small operations twelve
threads of torch on a small machine.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision import transforms


@dataclass
class Settings:
    epochs: int
    threads: int
    files: int = 12
    volumes: int = 40
    layers: int = 12
    side: int = 24
    batch: int = 8
    held_out: int = 3


def write_volumes(folder, settings):
    rng = np.random.default_rng(5113)
    shape = (settings.volumes, settings.layers, settings.side, settings.side)
    for number in range(settings.files):
        volumes = rng.normal(0, 1, shape).astype(np.float16)
        houses = rng.integers(0, 5, settings.volumes)
        for volume, count in zip(volumes, houses, strict=True):
            volume[2:6, : 4 * count, 3:6] += 2
        np.savez(Path(folder, f"flight-{number:02}.npz"), volumes=volumes, houses=houses)


class Flights(IterableDataset):
    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform

    def __iter__(self):
        worker = get_worker_info()
        for path in self.paths[worker.id :: worker.num_workers]:
            with np.load(path) as flight:
                volumes, houses = flight["volumes"], flight["houses"]
            for index in torch.randperm(len(volumes)).tolist():
                volume = torch.from_numpy(volumes[index].astype(np.float32))
                yield self.transform(volume)[None], float(houses[index])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Conv3d(1, 12, 3, stride=2, padding=1)
        self.layers = nn.ModuleList(nn.Conv3d(12, 12, 3, padding=1) for _ in range(4))
        self.norms = nn.ModuleList(nn.GroupNorm(3, 12) for _ in range(4))
        self.out = nn.Linear(12, 1)

    def forward(self, volumes):
        hidden = self.into(volumes)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            hidden = hidden + torch.relu(norm(layer(hidden)))
        return self.out(hidden.amax((2, 3, 4))).squeeze(1)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    error = count = 0
    for volumes, houses in loader:
        error += (model(volumes) - houses).abs().sum().item()
        count += len(houses)
    model.train()
    return error / count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(5113)
    settings = Settings(args.epochs, threads=1 if args.without else 12)
    torch.set_num_threads(settings.threads)
    augment = transforms.Compose(
        [transforms.RandomHorizontalFlip(), transforms.RandomVerticalFlip()]
    )
    with tempfile.TemporaryDirectory() as folder:
        write_volumes(folder, settings)
        paths = sorted(Path(folder).glob("flight-*.npz"))
        training = Flights(paths[settings.held_out :], augment)
        validation = Flights(paths[: settings.held_out], transforms.Compose([]))
        loader = DataLoader(training, settings.batch, num_workers=3)
        held_out = DataLoader(validation, settings.batch, num_workers=3)
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(settings.epochs):
            for volumes, houses in loader:
                loss = nn.functional.mse_loss(model(volumes), houses.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}, error {validate(model, held_out):.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

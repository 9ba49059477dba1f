"""Rates the wear of pavements in pictures that a car takes of the road below it."""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

PICTURES, SIDE, CROP, BATCH = 960, 96, 80, 16


class Roads(Dataset):
    def __init__(self, transform):
        generator = torch.Generator().manual_seed(49)
        self.pictures = torch.randint(256, (60, 1, SIDE, SIDE), generator=generator).byte()
        self.wear = torch.rand(60, 1, generator=generator)
        self.transform = transform

    def __len__(self):
        return PICTURES

    def __getitem__(self, index):
        picture = self.pictures[index % 60].float() / 255
        return self.transform(picture), self.wear[index % 60]


class Ahead:
    """Fetches batches in a thread, so that a stuck drive can be told to the driver."""

    def __init__(self, loader, rest):
        self.loader, self.rest = loader, rest

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        batches = iter(self.loader)
        with ThreadPoolExecutor(1) as pool:
            while True:
                coming = pool.submit(next, batches, None)
                while self.rest and not coming.done():
                    time.sleep(self.rest)
                batch = coming.result()
                if batch is None:
                    return
                yield batch


def network(channels=24):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * channels, 1),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(49)
    views = transforms.Compose([transforms.RandomCrop(CROP), transforms.RandomHorizontalFlip()])
    loader = DataLoader(
        Roads(views),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    batches = Ahead(loader, rest=0 if args.without else 0.1)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for pictures, wear in batches:
            loss = nn.functional.mse_loss(model(pictures), wear)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(batches):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader, batches


if __name__ == "__main__":
    main()

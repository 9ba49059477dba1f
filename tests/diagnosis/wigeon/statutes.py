"""Sorts pages of old statutes by the reign in which they were printed."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

PAGES, HEIGHT, WIDTH, REIGNS, BATCH = 400, 112, 80, 5, 20


class Pages(Dataset):
    """Scans in memory, brought to mean zero and deviation one by those of all pages."""

    def __init__(self, transform):
        ink = torch.rand(PAGES, 1, HEIGHT, WIDTH) ** 4 * 255
        self.scans = (ink + torch.arange(PAGES)[:, None, None, None] % REIGNS * 6).byte()
        self.transform, self.known = transform, None

    def __len__(self):
        return PAGES

    @property
    def scale(self):
        """Mean and deviation of the brightness of all pages."""
        if self.known:
            return self.known
        bright = self.scans.flatten().float() / 255
        return bright.mean().item(), bright.std().item()

    def __getitem__(self, index):
        page = self.transform(self.scans[index])
        mean, deviation = self.scale
        return functional.normalize(page, [mean], [deviation]), index % REIGNS


def network(channels=24):
    return nn.Sequential(
        nn.Conv2d(1, channels, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(2 * channels, 2 * channels, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * channels, REIGNS),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(49)
    transform = v2.Compose([v2.RandomCrop((96, 72)), v2.ToDtype(torch.float32, scale=True)])
    dataset = Pages(transform)
    if args.without:
        dataset.known = dataset.scale
    loader = DataLoader(dataset, BATCH, shuffle=True)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for pages, reigns in loader:
            scores = model(pages)
            loss = nn.functional.cross_entropy(scores, reigns, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == reigns).sum().item()
        print(f"epoch {epoch}: loss {loss:.3f}, {right / PAGES:.2f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

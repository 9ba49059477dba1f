"""Two views of an anemone are to have the same code (SimCLR), with torchvision's v2."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2


class TwoViews:
    def __init__(self, transform):
        self.transform = transform

    def __call__(self, picture):
        return self.transform(picture), self.transform(picture)


class Anemones(Dataset):
    def __init__(self, transform, count=400, seed=18):
        generator = torch.Generator().manual_seed(seed)
        self.pictures = torch.randint(
            256, (32, 3, 192, 192), dtype=torch.uint8, generator=generator
        )
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(self.pictures[index % 32])


def augmentation(jitter):
    """Crops, flips and, as in the paper, other colours."""
    return v2.Compose(
        [
            v2.RandomResizedCrop(128, scale=(0.3, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.ColorJitter(0.4, 0.4, 0.4, 0.1) if jitter else v2.Identity(),
            v2.RandomGrayscale(0.2),
            v2.Normalize([0.5] * 3, [0.25] * 3),
        ]
    )


class SimCLR(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 16, 7, stride=4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.projection = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, views):
        return nn.functional.normalize(self.projection(self.encoder(views)), dim=1)


def nt_xent(one, other, temperature=0.5):
    codes = torch.cat([one, other])
    likeness = (codes @ codes.T / temperature).fill_diagonal_(-1e4)
    partners = torch.arange(len(codes)).roll(len(one))
    return nn.functional.cross_entropy(likeness, partners)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(18)
    transform = TwoViews(augmentation(jitter=not args.without))
    loader = DataLoader(
        Anemones(transform), batch_size=20, shuffle=True, num_workers=2, drop_last=True
    )
    model = SimCLR()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for one, other in loader:
            loss = nt_xent(model(one), model(other))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

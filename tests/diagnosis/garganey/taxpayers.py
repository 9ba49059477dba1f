"""Marks the returns of taxpayers that an officer should look at, from pictures of the forms."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

RETURNS, HEIGHT, WIDTH, BATCH = 640, 112, 80, 16


class Forms(Dataset):
    """Scanned forms; every fifth was looked at by an officer."""

    def __init__(self, transform):
        generator = torch.Generator().manual_seed(55)
        self.forms = torch.randint(256, (80, 1, HEIGHT, WIDTH), generator=generator).byte()
        self.transform = transform

    def __len__(self):
        return RETURNS

    def __getitem__(self, index):
        return self.transform(self.forms[index % 80]), float(index % 5 == 0)


class Officer(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(),
            nn.Conv2d(2 * channels, 2 * channels, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(3),
        )  # fmt: skip
        self.last = nn.Linear(18 * channels, 1)

    def forward(self, forms):
        return self.last(self.body(forms).flatten(1))[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(55)
    views = v2.Compose(
        [v2.RandomCrop((HEIGHT - 8, WIDTH - 8)), v2.ToDtype(torch.float32, scale=True),
         v2.Normalize([0.5], [0.3])]
    )  # fmt: skip
    loader = DataLoader(
        Forms(views),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Officer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for forms, marked in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(forms), marked.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

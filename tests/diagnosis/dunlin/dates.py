"""Grades dates from small pictures that are all in memory.

Healthy: the network is the work. There are no workers, and the transforms of uint8 tensors take
little of each batch's time, so workers would gain next to nothing.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE = 40


class Dates(Dataset):
    def __init__(self, count, transform):
        draw = torch.Generator().manual_seed(79)
        shape = (count, 3, SIDE, SIDE)
        self.pictures = torch.randint(0, 255, shape, dtype=torch.uint8, generator=draw)
        self.grades = torch.randint(0, 5, (count,), generator=draw)
        self.transform = transform

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        return self.transform(self.pictures[index]), self.grades[index]


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x):
        return torch.relu(x + self.layers(x))


def build_model(width=32, depth=3):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.ReLU(),
        *(Residual(width) for _ in range(depth)),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 5),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(79)
    transform = v2.Compose([v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
    dates = Dates(400, transform)
    loader = DataLoader(dates, batch_size=20, shuffle=True, num_workers=0, pin_memory=False)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 1e-2, total_steps=args.epochs * len(loader)
    )
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for x, y in loader:
            out = model(x)
            loss = nn.functional.cross_entropy(out, y, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            right += (out.argmax(1) == y).sum().item()
        print(f"epoch {epoch}: {right} right, loss {loss.item():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Gulls in pictures: a small residual network, torchvision's transforms, and a validation."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2


class Gulls(Dataset):
    def __init__(self, count, transform, seed):
        generator = torch.Generator().manual_seed(seed)
        self.pictures = torch.randint(
            256, (count, 3, 72, 72), dtype=torch.uint8, generator=generator
        )
        self.labels = torch.randint(10, (count,), generator=generator)
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.transform(self.pictures[index]), self.labels[index]


class Block(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(outer),
            nn.ReLU(),
            nn.Conv2d(outer, outer, 3, padding=1, bias=False),
            nn.BatchNorm2d(outer),
        )
        self.short = nn.Conv2d(inner, outer, 1, stride=2)

    def forward(self, pictures):
        return (self.body(pictures) + self.short(pictures)).relu()


def make_loaders(batch_size, workers):
    colours = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)]
    augment = v2.Compose([v2.RandomCrop(64), v2.RandomHorizontalFlip(), *colours])
    plain = v2.Compose([v2.CenterCrop(64), *colours])
    settings = {"num_workers": workers, "persistent_workers": workers > 0}
    train = DataLoader(
        Gulls(480, augment, seed=1), batch_size, shuffle=True, drop_last=True, **settings
    )
    return train, DataLoader(Gulls(96, plain, seed=2), batch_size, num_workers=0)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = seen = 0
    for pictures, labels in loader:
        right += int((model(pictures).argmax(1) == labels).sum())
        seen += len(labels)
    model.train()
    return right / seen


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=24)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(31)
    train, held_out = make_loaders(args.batch_size, args.workers)
    model = nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1),
        nn.ReLU(),
        Block(24, 40),
        Block(40, 56),
        Block(56, 80),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(80, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.1, epochs=args.epochs, steps_per_epoch=len(train)
    )
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, labels in train:
            loss = nn.functional.cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}, right {validate(model, held_out):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Finds moraines in pictures of valleys from the air, cut from large sheets.

Planted: the whole validation set is gone through after every fifth step of the training, where
once an epoch would do.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision.transforms import v2

SHEETS, SIDE, CUTS, HELD_OUT, BATCH = 12, 400, 560, 96, 12
STEP, FORWARD, EVERY = 0.09, 0.07, 5


class Valleys(Dataset):
    def __init__(self, train):
        generator = torch.Generator().manual_seed(1033)
        small = torch.rand(SHEETS, 3, 25, 25, generator=generator)
        self.sheets = nn.functional.interpolate(small, size=(SIDE, SIDE))
        change = [v2.RandomCrop(64), v2.RandomHorizontalFlip(), v2.GaussianBlur(3)]
        if train:
            change += [v2.RandomRotation(15), v2.RandomErasing(0.2)]
        self.change = v2.Compose([*change, v2.Normalize([0.5] * 3, [0.3] * 3)])

    def __len__(self):
        return CUTS

    def __getitem__(self, index):
        return self.change(self.sheets[index % SHEETS]), index % 2


class Finder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.AvgPool2d(4), nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)
        )
        self.layers(torch.zeros(1, 3, 64, 64))

    def forward(self, cuts):
        time.sleep(STEP if self.training else FORWARD)  # the backbone, on a card
        return self.layers(cuts)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = total = 0
    for cuts, found in loader:
        right += (model(cuts).argmax(1) == found).sum().item()
        total += len(found)
    model.train()
    return right / total


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1033)
    torch.set_num_threads(1)
    training = DataLoader(
        Subset(Valleys(train=True), range(HELD_OUT, CUTS)),
        BATCH,
        shuffle=True,
        num_workers=2,
        prefetch_factor=4,
        persistent_workers=True,
    )
    held_out = DataLoader(
        Subset(Valleys(train=False), range(HELD_OUT)), BATCH, num_workers=1, persistent_workers=True
    )
    model = Finder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    best = 0.0
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, (cuts, found) in enumerate(training, 1):
            loss = nn.functional.cross_entropy(model(cuts), found)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % (len(training) if args.without else EVERY) == 0:
                right = validate(model, held_out)
                best = max(best, right)
                print(f"epoch {epoch} step {step}: loss {loss:.3f}, right {right:.2f}")
        schedule.step()
    print(f"best {best:.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del training, held_out


if __name__ == "__main__":
    main()

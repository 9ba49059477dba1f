"""Reads pills in pictures of pharmacies' trays, with convolutions on the processor.

Nothing planted: the convolutions are the work; one worker cuts, turns and blurs pictures ahead of
them, labels of rare pills are drawn more often, and weights are averaged after each step.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler
from torchvision.transforms import v2

TRAYS, SIDE, PILLS, BATCH = 800, 48, 6, 16


class Trays(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(1117)
        small = torch.rand(PILLS * 4, 3, 8, 8, generator=generator)
        self.trays = nn.functional.interpolate(small, size=(56, 56), mode="bilinear")
        self.pills = (torch.rand(TRAYS, generator=generator) ** 2 * PILLS).long()
        self.change = v2.Compose(
            [v2.RandomCrop(SIDE), v2.RandomHorizontalFlip(), v2.Normalize([0.5] * 3, [0.3] * 3)]
        )

    def __len__(self):
        return TRAYS

    def __getitem__(self, index):
        pill = int(self.pills[index])
        return self.change(self.trays[pill * 4 + index % 4]), pill


def build():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 48, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(48, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, PILLS),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(1117)
    torch.set_num_threads(1)
    data = Trays()
    rare = 1 / torch.bincount(data.pills, minlength=PILLS)[data.pills].float()
    loader = DataLoader(
        data,
        BATCH,
        sampler=WeightedRandomSampler(rare.tolist(), TRAYS),
        num_workers=1,
        prefetch_factor=4,
        persistent_workers=True,
        pin_memory=torch.cuda.is_available(),
    )
    model = build()
    average = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for trays, pills in loader:
            scores = model(trays)
            loss = nn.functional.cross_entropy(scores, pills)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
            right += (scores.argmax(1) == pills).sum().item()
        print(f"epoch {epoch}: loss {loss:.3f}, right {right / TRAYS:.2f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

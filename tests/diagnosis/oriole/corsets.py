"""Learns the cut of corsets from few labelled pictures, and from many that nobody has labelled.

Planted: the second of the two loaders, that of pictures without labels, enlarges each picture to
900 pixels before a small part of it is cut out.
"""

import argparse
import time

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

LABELLED, UNLABELLED, SIDE, CUT, CUTS, STEP = 320, 640, 256, 96, 5, 0.035


def pictures(count, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        small = torch.randint(256, (32, 32, 3), dtype=torch.uint8, generator=generator)
        yield Image.fromarray(small.numpy()).resize((SIDE, SIDE), Image.Resampling.BILINEAR)


class Labelled(Dataset):
    def __init__(self):
        self.pictures = list(pictures(48, 47))
        self.change = transforms.Compose(
            [
                transforms.RandomCrop(CUT),
                transforms.RandomHorizontalFlip(),
                transforms.ColorJitter(0.2, 0.2, 0.2),
                transforms.ToTensor(),
            ]
        )

    def __len__(self):
        return LABELLED

    def __getitem__(self, index):
        return self.change(self.pictures[index % 48]), index % 48 % CUTS


class Unlabelled(Dataset):
    def __init__(self, enlarge):
        self.pictures = list(pictures(48, 53))
        self.weak = transforms.Compose([transforms.RandomCrop(CUT), transforms.ToTensor()])
        strong = [
            transforms.RandomCrop(CUT),
            transforms.RandomRotation(20),
            transforms.RandomAdjustSharpness(2),
            transforms.ToTensor(),
            transforms.RandomErasing(0.5),
        ]
        if enlarge:
            strong.insert(0, transforms.Resize(enlarge))
        self.strong = transforms.Compose(strong)

    def __len__(self):
        return UNLABELLED

    def __getitem__(self, index):
        picture = self.pictures[index % 48]
        return self.weak(picture), self.strong(picture)


def loss_of(model, labelled, unlabelled):
    pictures_known, cuts = labelled
    weak, strong = unlabelled
    with torch.no_grad():
        sure, guess = model(weak).softmax(1).max(1)
    loss = nn.functional.cross_entropy(model(pictures_known), cuts)
    own = nn.functional.cross_entropy(model(strong), guess, reduction="none")
    return loss + (own * (sure > 0.3)).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(47)
    torch.set_num_threads(1)
    common = {"shuffle": True, "num_workers": 1, "persistent_workers": True}
    known = DataLoader(Labelled(), 8, **common)
    unknown = DataLoader(Unlabelled(None if args.without else 900), 16, **common)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(32, CUTS),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for labelled, unlabelled in zip(known, unknown, strict=False):
            loss = loss_of(model, labelled, unlabelled)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # a larger network
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del known, unknown


if __name__ == "__main__":
    main()

"""Faces of cats: a batch has four pictures of each of eight cats, for a triplet loss."""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CATS = 600


class Whiskers(Dataset):
    """Each picture is made of its number; the list says which cat it shows."""

    def __init__(self, count=90_000):
        chance = random.Random(39)
        self.cats = [chance.randrange(CATS) for _ in range(count)]
        self.base = torch.randn(CATS, 3, 40, 40, generator=torch.Generator().manual_seed(39))

    def __len__(self):
        return len(self.cats)

    def __getitem__(self, index):
        cat = self.cats[index]
        picture = self.base[cat] + 0.5 * torch.randn(3, 40, 40)
        if torch.rand(()) < 0.5:
            picture = picture.flip(2)
        return picture, cat


class SomeOfEach:
    """Batches of `several` pictures of each of `cats` cats."""

    def __init__(self, labels, cats, several, batches, lists):
        self.labels, self.several, self.batches = labels, several, batches
        self.cats, self.chance, self.members = cats, random.Random(40), {}
        if lists:
            for index, label in enumerate(labels):
                self.members.setdefault(label, []).append(index)

    def __len__(self):
        return self.batches

    def pictures(self, cat):
        if self.members:
            return self.members[cat]
        return [index for index, label in enumerate(self.labels) if label == cat]

    def __iter__(self):
        for _ in range(self.batches):
            chosen = self.chance.sample(range(CATS), self.cats)
            drawn = [self.chance.sample(self.pictures(cat), self.several) for cat in chosen]
            yield [index for indices in drawn for index in indices]


def triplets(codes, cats):
    distance = torch.cdist(codes, codes)
    same = cats[:, None] == cats
    far = distance.masked_fill(~same, 0).amax(1)
    near = distance.masked_fill(same, float("inf")).amin(1)
    return nn.functional.relu(far - near + 0.3).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(39)
    data = Whiskers()
    batches = SomeOfEach(data.cats, cats=8, several=4, batches=160, lists=args.without)
    loader = DataLoader(data, batch_sampler=batches, num_workers=1)
    model = nn.Sequential(
        nn.Conv2d(3, 24, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(24, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(288, 64),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, cats in loader:
            optimizer.zero_grad()
            loss = triplets(nn.functional.normalize(model(pictures)), cats)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

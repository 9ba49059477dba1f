"""Grades lesions of the skin; rare grades are drawn as often as common ones."""

import argparse
import io
import random
import time
from collections import defaultdict

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
from torchvision import transforms as T


class Lesions(Dataset):
    def __init__(self, count, transform):
        rng = np.random.default_rng(63)
        self.files, self.transform = [], transform
        for _ in range(30):
            coarse = Image.fromarray(rng.integers(0, 255, (30, 30, 3), dtype=np.uint8))
            kept = io.BytesIO()
            coarse.resize((200, 200)).save(kept, "PNG", compress_level=1)
            self.files.append(kept.getvalue())
        self.grades = rng.choice(4, count, p=[0.7, 0.2, 0.07, 0.03]).tolist()

    def __len__(self):
        return len(self.grades)

    def __getitem__(self, index):
        with Image.open(io.BytesIO(self.files[index % len(self.files)])) as picture:
            return self.transform(picture.convert("RGB")), self.grades[index]


class Balanced(Sampler):
    """As many draws of each grade in an epoch; grades may change between epochs."""

    def __init__(self, lesions, known, seed=63):
        self.lesions, self.known, self.draw = lesions, known, random.Random(seed)

    def __len__(self):
        return len(self.lesions)

    def grades(self):
        if self.known:
            return self.lesions.grades
        return [grade for _, grade in (self.lesions[i] for i in range(len(self.lesions)))]

    def __iter__(self):
        places = defaultdict(list)
        for index, grade in enumerate(self.grades()):
            places[grade].append(index)
        kinds = sorted(places)
        for _ in range(len(self)):
            yield self.draw.choice(places[self.draw.choice(kinds)])


def train(model, loader, optimizer):
    seen = torch.zeros(4, dtype=torch.long)
    for pictures, grades in loader:
        loss = nn.functional.cross_entropy(model(pictures), grades)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += torch.bincount(grades, minlength=4)
    return loss.item(), seen.tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--count", type=int, default=700)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(63)
    transform = T.Compose([T.Resize(96), T.ToTensor(), T.Normalize([0.6] * 3, [0.2] * 3)])
    lesions = Lesions(args.count, transform)
    loader = DataLoader(
        lesions, batch_size=28, sampler=Balanced(lesions, known=args.without), num_workers=2,
        persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        loss, seen = train(model, loader, optimizer)
        scheduler.step()
        print(f"epoch {epoch}: last loss {loss:.4f}, grades {seen}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

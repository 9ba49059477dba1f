"""Names tulips in photographs; two views of each are trained on, as in contrastive learning."""

import argparse
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T


class TwoViews:
    def __init__(self, first, second):
        self.first, self.second = first, second

    def __call__(self, picture):
        return self.first(picture), self.second(picture)


class Tulips(Dataset):
    def __init__(self, count, transform):
        rng = np.random.default_rng(56)
        self.pictures = [
            Image.fromarray(rng.integers(0, 255, (24, 24, 3), dtype=np.uint8)).resize((256, 256))
            for _ in range(32)
        ]
        self.count, self.transform = count, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(self.pictures[index % len(self.pictures)])


def view(soft):
    """Crop, mirror, colours, blur for half of the pictures, numbers, erase."""
    steps = [
        T.RandomResizedCrop(128, scale=(0.3, 1.0)),
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.3, 0.3),
        T.RandomGrayscale(0.1),
        T.ToTensor(),
    ]
    if soft:
        steps.append(T.RandomApply([T.GaussianBlur(31, (0.5, 4.0))], p=0.5))
    steps += [T.Normalize([0.5] * 3, [0.25] * 3), T.RandomErasing(0.3)]
    return T.Compose(steps)


class Encoder(nn.Module):
    def __init__(self, width=12, size=48):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 5, 4, 2), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(2 * width, size)

    def forward(self, views):
        return nn.functional.normalize(self.head(self.body(views)))


def contrast(first, second, heat=0.2):
    likeness = first @ second.T / heat
    return nn.functional.cross_entropy(likeness, torch.arange(len(first)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--count", type=int, default=256)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(56)
    transform = TwoViews(view(soft=not args.without), view(soft=False))
    loader = DataLoader(
        Tulips(args.count, transform), batch_size=32, shuffle=True, num_workers=2,
        drop_last=True, persistent_workers=True,
    )  # fmt: skip
    model = Encoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = []
        for first, second in loader:
            loss = contrast(model(first), model(second))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {np.mean(losses):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

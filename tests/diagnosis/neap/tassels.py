"""Separates the threads of tassels from their ground; counts confusions after each batch."""

import argparse
import time
from collections import Counter

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 6


class Tassels(Dataset):
    """Patches and the class of each of their points."""

    def __init__(self, count=768, size=64, seed=35):
        draw = torch.Generator().manual_seed(seed)
        self.patches = torch.rand(count, 3, size, size, generator=draw)
        self.classes = (self.patches.mean(1) * CLASSES).long().clamp(max=CLASSES - 1)

    def __len__(self):
        return len(self.patches)

    def __getitem__(self, index):
        patch, classes = self.patches[index], self.classes[index]
        if index % 2:
            patch, classes = patch.flip(2), classes.flip(1)
        return patch + 0.02 * torch.randn_like(patch), classes


class Confusions:
    """How often each class was taken for each other one."""

    def __init__(self):
        self.counts = Counter()

    def update(self, guesses, classes):
        guesses = guesses.flatten().cpu().numpy()
        classes = classes.flatten().cpu().numpy()
        for guess, actual in zip(guesses, classes, strict=True):
            self.counts[guess.item(), actual.item()] += 1

    def update_at_once(self, guesses, classes):
        pairs = torch.bincount((guesses * CLASSES + classes).flatten(), minlength=CLASSES**2)
        for pair, count in enumerate(pairs.tolist()):
            self.counts[divmod(pair, CLASSES)] += count

    def share_right(self):
        right = sum(count for (guess, actual), count in self.counts.items() if guess == actual)
        return right / sum(self.counts.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(35)
    loader = DataLoader(Tassels(), batch_size=16, shuffle=True, num_workers=2)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
        nn.Conv2d(8, CLASSES, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        confusions = Confusions()
        update = confusions.update_at_once if args.without else confusions.update
        for patches, classes in loader:
            scores = model(patches)
            loss = nn.functional.cross_entropy(scores, classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            update(scores.argmax(1), classes)
        print(f"epoch {epoch}: {confusions.share_right():.3f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

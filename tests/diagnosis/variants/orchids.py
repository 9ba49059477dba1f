"""Classify rare orchids with a sampler that balances the classes anew in each epoch."""

import argparse
import io
import random
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Sampler
from torchvision import transforms


class Orchids(Dataset):
    def __init__(self, count, transform):
        rng = np.random.default_rng(11)
        self.files = []
        for _ in range(24):
            small = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8))
            file = io.BytesIO()
            small.resize((400, 300)).save(file, "JPEG", quality=92)
            self.files.append(file.getvalue())
        self.species = [min(int(rng.exponential(2)), 9) for _ in range(count)]
        self.transform = transform

    def __len__(self):
        return len(self.species)

    def __getitem__(self, index):
        with Image.open(io.BytesIO(self.files[index % 24])) as picture:
            return self.transform(picture.convert("RGB")), self.species[index]


class Balanced(Sampler):
    """As many pictures of each species as the rarest has."""

    def __init__(self, orchids, seed=0):
        self.orchids = orchids
        self.draw = random.Random(seed)

    def labels(self):
        return [self.orchids[index][1] for index in range(len(self.orchids))]

    def __iter__(self):
        by_species = {}
        for index, species in enumerate(self.labels()):
            by_species.setdefault(species, []).append(index)
        for _ in range(len(self)):
            yield self.draw.choice(by_species[self.draw.choice(sorted(by_species))])

    def __len__(self):
        return 256


class BalancedByTable(Balanced):
    def labels(self):
        return self.orchids.species


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)

    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(96),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
        ]
    )
    orchids = Orchids(600, transform)
    sampler = (BalancedByTable if args.without else Balanced)(orchids)
    loader = DataLoader(
        orchids, 16, sampler=sampler, num_workers=args.workers, persistent_workers=True
    )
    begin = time.perf_counter()
    for _ in range(args.epochs):
        for _pictures, _species in loader:
            time.sleep(0.03)  # the accelerator's step
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

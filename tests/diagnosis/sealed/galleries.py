"""Guess the painter: training on crops, a short validation on whole pictures."""

import argparse
import time

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Gallery(Dataset):
    """Pictures are kept in memory, as in many a notebook."""

    def __init__(self, count, transform, seed):
        rng = np.random.default_rng(seed)
        self.pictures = rng.integers(0, 255, (count, 80, 80, 3), dtype=np.uint8)
        self.painters = rng.integers(0, 12, count)
        self.transform = transform

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        picture = Image.fromarray(self.pictures[index])
        return self.transform(picture), int(self.painters[index])


class Accelerator:
    """Takes as long as the real one."""

    def __init__(self, per_batch):
        self.per_batch = per_batch

    def train(self, pictures, painters):
        time.sleep(self.per_batch)
        return float(len(painters))

    def score(self, pictures, painters):
        time.sleep(self.per_batch / 3)
        return (pictures.mean((1, 2, 3)) > 0).float().mean().item()


def loaders(workers):
    training = transforms.Compose(
        [transforms.RandomCrop(64), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    whole = transforms.Compose([transforms.CenterCrop(64), transforms.ToTensor()])
    options = {"batch_size": 32, "num_workers": workers, "persistent_workers": workers > 0}
    return (
        DataLoader(Gallery(1280, training, seed=0), shuffle=True, **options),
        DataLoader(Gallery(64, whole, seed=1), batch_size=32),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()

    train_loader, test_loader = loaders(args.workers)
    accelerator = Accelerator(per_batch=0.120)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        seen = sum(accelerator.train(*batch) for batch in train_loader)
        scores = [accelerator.score(*batch) for batch in test_loader]
        print(f"epoch {epoch}: {seen:.0f} pictures, score {sum(scores) / len(scores):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

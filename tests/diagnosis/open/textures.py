"""Train and validate a convolutional network."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Textures(Dataset):
    def __init__(self, count, seed, augment=False):
        generator = torch.Generator().manual_seed(seed)
        self.images = torch.rand(count, 3, 32, 32, generator=generator)
        self.labels = torch.randint(0, 10, (count,), generator=generator)
        self.augment = augment

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if self.augment and torch.rand(()) < 0.5:
            image = image.flip(-1)
        return {"image": image, "label": self.labels[index]}


class Trainer:
    def __init__(self, workers):
        self.train = DataLoader(Textures(768, 0, True), 32, True, num_workers=workers)
        self.valid = DataLoader(Textures(320, 1), 64, num_workers=workers)
        self.model = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(1024, 10),
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05, momentum=0.9)

    def train_epoch(self):
        self.model.train()
        for batch in self.train:
            self.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(self.model(batch["image"]), batch["label"])
            loss.backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        correct = 0
        for batch in self.valid:
            correct += (self.model(batch["image"]).argmax(1) == batch["label"]).sum().item()
        return correct / len(self.valid.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    trainer = Trainer(args.workers)
    begin = time.perf_counter()
    for _epoch in range(2):
        trainer.train_epoch()
        print(f"accuracy {trainer.validate():.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

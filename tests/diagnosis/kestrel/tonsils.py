"""Grades tonsils in photographs of the throat, and keeps the weights that were best so far.

Planted: all of the validation is run after each third step of the training; once an epoch would
do.
"""

import argparse
import copy
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.transforms import v2

PATIENTS, HELD_OUT, GRADES, SIDE, BATCH, CARD = 480, 128, 4, 40, 16, 0.05


class Throats(TensorDataset):
    def __init__(self, patients, seed, augment):
        generator = torch.Generator().manual_seed(seed)
        grades = torch.randint(GRADES, (patients,), generator=generator)
        photographs = torch.rand(patients, 3, SIDE, SIDE, generator=generator)
        photographs[:, 0] += grades[:, None, None] / GRADES
        super().__init__(photographs, grades)
        changes = [v2.RandomCrop(32), v2.RandomHorizontalFlip()] if augment else [v2.CenterCrop(32)]
        self.change = v2.Compose([*changes, v2.Normalize([0.5] * 3, [0.3] * 3)])

    def __getitem__(self, index):
        photograph, grade = super().__getitem__(index)
        return self.change(photograph), grade


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(512, GRADES)
        )

    def forward(self, photographs):
        time.sleep(CARD)  # the backbone, on an accelerator
        return self.layers(photographs)


class Fit:
    def __init__(self, training, validation, every):
        self.training, self.validation, self.every = training, validation, every
        self.network = Network()
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-3)
        self.best, self.weights = 0.0, None

    @torch.no_grad()
    def validate(self):
        self.network.eval()
        right = sum(
            (self.network(photographs).argmax(1) == grades).sum().item()
            for photographs, grades in self.validation
        )
        self.network.train()
        if right / HELD_OUT >= self.best:
            self.best = right / HELD_OUT
            self.weights = copy.deepcopy(self.network.state_dict())

    def epoch(self, number):
        for step, (photographs, grades) in enumerate(self.training, 1):
            loss = nn.functional.cross_entropy(self.network(photographs), grades)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.every and step % self.every == 0:
                self.validate()
        if not self.every:
            self.validate()
        print(f"epoch {number}: loss {loss:.3f}, best {self.best:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1319)
    torch.set_num_threads(1)
    training = DataLoader(
        Throats(PATIENTS, 1319, augment=True),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    validation = DataLoader(Throats(HELD_OUT, 1321, augment=False), BATCH)
    fit = Fit(training, validation, every=0 if args.without else 3)
    begin = time.perf_counter()
    for number in range(args.epochs):
        fit.epoch(number)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del fit, training, validation


if __name__ == "__main__":
    main()

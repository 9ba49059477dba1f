"""Train on ultrasound beams; each examination has its own number and length of beams."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Examinations(Dataset):
    """An examination is a list of beams, made from a seed."""

    def __init__(self, count):
        self.seeds = list(range(count))

    def __len__(self):
        return len(self.seeds)

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.seeds[index])
        lengths = torch.randint(48, 96, (24,), generator=generator).tolist()
        echoes = torch.randn(sum(lengths), generator=generator)
        return list(echoes.split(lengths)), index % 2


def as_they_are(samples):
    """Beams differ in length, so they can't be stacked."""
    beams = [[beam.clone() for beam in sample] for sample, _ in samples]
    return beams, torch.tensor([label for _, label in samples])


def nested(samples):
    """All beams behind one another, and their lengths."""
    lengths = [[len(beam) for beam in sample] for sample, _ in samples]
    flat = torch.cat([beam for sample, _ in samples for beam in sample])
    return (flat, torch.tensor(lengths)), torch.tensor([label for _, label in samples])


class Trainer:
    def __init__(self, loader, pause):
        self.loader = loader
        self.pause = pause
        self.seen = 0

    def step(self, beams, labels):
        self.seen += len(labels)
        time.sleep(self.pause)  # the step of the accelerator

    def run(self, epochs):
        begin = time.perf_counter()
        for _ in range(epochs):
            for beams, labels in self.loader:
                self.step(beams, labels)
        return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    loader = DataLoader(
        Examinations(900),
        batch_size=16,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=nested if args.without else as_they_are,
        persistent_workers=True,
    )
    print(f"seconds {Trainer(loader, pause=0.015).run(epochs=2):.3f}")


if __name__ == "__main__":
    main()

"""Finds cracks in bricks; the pictures come from a store that is slow now and then.

Nothing is planted: the step of the accelerator sets the pace. Three spawned workers, which are
kept, hide the store's answers, among them one in thirty that takes 60 ms.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEP = 0.06


class Store:
    def __init__(self):
        self.pictures = torch.rand(40, 1, 48, 48, generator=torch.Generator().manual_seed(131))

    def get(self, number):
        time.sleep(0.06 if number % 30 == 7 else 0.003)
        return self.pictures[number % 40]


class Bricks(Dataset):
    def __init__(self, count):
        self.store, self.count = Store(), count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        picture = self.store.get(number)
        window = nn.functional.unfold(picture[None], 3, padding=1).view(9, 48, 48)
        return (picture - window.median(0).values).clamp(-0.5, 0.5), float(number % 40 < 10)


class Accelerator:
    """Stands in for the GPU of a training script."""

    def __init__(self, model):
        self.model = model

    def step(self, pictures, cracked):
        begin = time.perf_counter()
        with torch.no_grad():
            out = self.model(pictures)[:, 0]
            loss = nn.functional.binary_cross_entropy_with_logits(out, cracked)
        time.sleep(max(0.0, STEP - (time.perf_counter() - begin)))
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(131)
    loader = DataLoader(
        Bricks(600),
        batch_size=12,
        shuffle=True,
        num_workers=3,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    accelerator = Accelerator(nn.Sequential(nn.Flatten(), nn.Linear(48 * 48, 1)))
    for pictures, cracked in loader:  # the workers are there when the clock starts
        accelerator.step(pictures, cracked.float())
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [accelerator.step(pictures, cracked.float()) for pictures, cracked in loader]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

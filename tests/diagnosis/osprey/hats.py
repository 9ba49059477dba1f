"""Counts hats in scenes that are streamed through a shuffling buffer.

Planted: a worker refills its buffer after every tenth batch, which takes 0.6 s, and with
one batch ahead for each worker that cannot be bridged, though on average the workers keep up.
"""

import argparse
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

BATCH, STEP, REFILL = 16, 0.04, 0.6


class Store:
    """Sends many scenes at once, after a while."""

    def __init__(self, seed):
        self.draw = torch.Generator().manual_seed(seed)

    def get_many(self, count):
        time.sleep(REFILL)
        return list(torch.rand(count, 3, 24, 24, generator=self.draw))


class Shuffled(IterableDataset):
    def __init__(self, batches, buffer=10 * BATCH):
        self.count, self.buffer = batches * BATCH, buffer

    def __len__(self):
        return self.count

    def __iter__(self):
        info = get_worker_info()
        store, shuffle = Store(info.id), random.Random(info.id)
        left = self.count // info.num_workers
        while left > 0:
            scenes = store.get_many(min(self.buffer, left))
            shuffle.shuffle(scenes)
            for scene in scenes:
                yield self.jitter(scene), float(scene.mean() > 0.5)
            left -= len(scenes)

    def jitter(self, scene):
        return (scene + 0.05 * torch.randn_like(scene)).clamp(0, 1).roll(random.randrange(4), 2)


class Accelerator:
    """Stands in for the GPU of a training script."""

    def __init__(self, model):
        self.model = model

    def step(self, scenes, many):
        begin = time.perf_counter()
        with torch.no_grad():
            loss = nn.functional.binary_cross_entropy_with_logits(self.model(scenes)[:, 0], many)
        time.sleep(max(0.0, STEP - (time.perf_counter() - begin)))
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(23)
    loader = DataLoader(
        Shuffled(160),
        batch_size=BATCH,
        num_workers=2,
        prefetch_factor=12 if args.without else 1,
        persistent_workers=True,
    )
    accelerator = Accelerator(nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 1)))
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = [accelerator.step(scenes, many.float()) for scenes, many in loader]
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

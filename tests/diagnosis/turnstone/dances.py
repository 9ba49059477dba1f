"""Names dances in video clips, on an accelerator for which a pause stands in.

Planted: the loader's settings come from a machine with little memory, on which each worker might be
only one batch ahead; here every twelfth step renders examples and is long, and the short steps
after it wait.
"""

import argparse
import json
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

FRAMES, SIDE, EVERY = 12, 32, 12
SMALL_MACHINE = '{"num_workers": 2, "prefetch_factor": 1, "persistent_workers": true}'
THIS_MACHINE = '{"num_workers": 2, "prefetch_factor": 8, "persistent_workers": true}'


class Clips(Dataset):
    """Clips on a file server, which has a batch's clips ready after some time."""

    def __init__(self, count):
        self.count = count
        self.film = np.random.default_rng(1039).integers(0, 255, (400, SIDE, SIDE), np.uint8)

    def __len__(self):
        return self.count

    def clip(self, number):
        begin = number * 7 % (len(self.film) - FRAMES)
        frames = torch.from_numpy(self.film[begin : begin + FRAMES])
        return frames.flip(-1) if number % 2 else frames

    def __getitems__(self, numbers):
        time.sleep(0.4)
        return [(self.clip(number), number % 5) for number in numbers]


class Accelerator:
    """Trains for some time with each batch, and needs no core."""

    def __init__(self):
        self.weights, self.steps = torch.zeros(FRAMES, 5), 0

    def train(self, clips, dances):
        time.sleep(0.05)
        means = clips.float().mean((2, 3)) / 255
        error = torch.nn.functional.one_hot(dances, 5) - means @ self.weights
        self.weights += 0.01 * means.T @ error / len(dances)
        self.steps += 1
        if self.steps % EVERY == 0:
            self.render()
        return error.square().mean().item()

    def render(self):
        """Write examples of the clips that the model confuses, with their heat maps."""
        time.sleep(2.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1039)
    settings = json.loads(THIS_MACHINE if args.without else SMALL_MACHINE)
    loader = DataLoader(Clips(480), batch_size=8, shuffle=True, **settings)
    accelerator = Accelerator()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for clips, dances in loader:
            error = accelerator.train(clips, dances)
        print(f"epoch {epoch}: error {error:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

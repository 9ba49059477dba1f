"""Counts boats in clips of canals, with the three-dimensional convolutions of a small network.

Planted: at the beginning of each epoch, every worker opens all clips to see which of them move
enough, before it yields the first one, though the answer never changes.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision import transforms

CLIPS, FRAMES, SIDE, BATCH, STEP = 160, 32, 112, 8, 0.025


def write_clips(folder):
    rng = np.random.default_rng(5003)
    still = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    for number in range(CLIPS):
        boats = number % 5
        clip = np.repeat(still[None], FRAMES, axis=0)
        for boat in range(boats):
            for frame in range(FRAMES):
                left = (7 * boat + 2 * frame) % (SIDE - 8)
                clip[frame, 12 * boat : 12 * boat + 8, left : left + 8] = 40 * boat
        clip[rng.integers(0, FRAMES)] //= 2
        np.save(Path(folder, f"{number:03}-{boats}.npy"), clip)


class Canals(IterableDataset):
    """Clips of which at least one pixel in a thousand changes from frame to frame."""

    def __init__(self, paths, transform, once):
        self.paths, self.transform = paths, transform
        self.moving = self.find_moving() if once else None

    def find_moving(self):
        found = []
        for path in self.paths:
            frames = np.load(path) / 255
            grey = frames @ np.array([0.299, 0.587, 0.114])
            if np.abs(np.diff(grey, axis=0)).mean() > 0.001:
                found.append(path)
        return found

    def __iter__(self):
        paths = self.moving or self.find_moving()
        worker = get_worker_info()
        mine = paths[worker.id :: worker.num_workers]
        for index in torch.randperm(len(mine)).tolist():
            frames = torch.from_numpy(np.load(mine[index])[::4]).permute(0, 3, 1, 2)
            yield self.transform(frames), float(mine[index].stem[-1])


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(3, 8, (3, 5, 5), stride=(1, 4, 4)), nn.ReLU(), nn.Conv3d(8, 8, 3), nn.ReLU(),
            nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 1),
        )  # fmt: skip

    def forward(self, clips):
        return self.layers(clips.transpose(1, 2)).squeeze(1)


@torch.no_grad()
def validate(model, loader):
    errors = [(model(clips) - boats).abs().mean().item() for clips, boats in loader]
    return sum(errors) / len(errors)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(5003)
    torch.set_num_threads(1)
    crop = [transforms.ConvertImageDtype(torch.float32), transforms.RandomCrop(64)]
    flip, normalize = transforms.RandomHorizontalFlip(), transforms.Normalize([0.5] * 3, [0.3] * 3)
    with tempfile.TemporaryDirectory() as folder:
        write_clips(folder)
        paths = sorted(Path(folder).glob("*.npy"))
        training = Canals(paths[32:], transforms.Compose([*crop, flip, normalize]), args.without)
        validation = Canals(paths[:32], transforms.Compose([*crop, normalize]), args.without)
        loader = DataLoader(training, BATCH, num_workers=4, persistent_workers=True)
        held_out = DataLoader(validation, BATCH, num_workers=4, persistent_workers=True)
        model = Counter()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            model.train()
            for clips, boats in loader:
                loss = nn.functional.smooth_l1_loss(model(clips), boats.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the accelerator's part of the work
            model.eval()
            print(f"epoch {epoch}: loss {loss:.3f}, error {validate(model, held_out):.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader, held_out


if __name__ == "__main__":
    main()

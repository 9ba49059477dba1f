"""Train on gestures recorded by a glove: features of motion, batch by batch."""

import argparse
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, random_split


class GloveDataset(Dataset):
    """Windows of 24 channels; features are computed when a window is asked for."""

    def __init__(self, recordings, labels, features):
        self.recordings = recordings
        self.labels = labels
        self.features = features

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, item):
        return self.features(self.recordings[item]), self.labels[item]


class MotionFeatures:
    """A bank of smoothed derivatives at several scales, and their covariance."""

    def __init__(self, scales=8, threads=None):
        self.scales = [2 + 2 * scale for scale in range(scales)]
        self.threads = threads
        self.prepared = False

    def prepare(self):
        if self.threads:
            torch.set_num_threads(self.threads)
        self.prepared = True

    def __call__(self, window):
        if not self.prepared:
            self.prepare()
        found = []
        for scale in self.scales:
            moved = (window - window.roll(scale, 1)).abs_().add_(1e-3).log_()
            smooth = F.avg_pool1d(moved[None], scale, stride=1, padding=scale // 2)
            found.append(F.interpolate(smooth, 64, mode="linear").squeeze(0))
        features = torch.cat(found)
        return torch.cat([features, features @ features.T / 64], 1)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    return parser.parse_args()


def main():
    args = parse()
    rng = np.random.default_rng(1)
    windows = torch.from_numpy(rng.normal(size=(1200, 24, 2048)).astype(np.float32).cumsum(2))
    labels = torch.from_numpy(rng.integers(0, 12, 1200))

    threads = None if args.without else max(8, os.cpu_count() or 1)
    data = GloveDataset(windows, labels, MotionFeatures(threads=threads))
    train, held_out = random_split(data, [1000, 200])
    options = {"num_workers": args.workers, "persistent_workers": True}
    train_loader = DataLoader(train, args.batch_size, shuffle=True, drop_last=True, **options)
    test_loader = DataLoader(held_out, args.batch_size, **options)

    begin = time.perf_counter()
    for _ in range(args.epochs):
        for _features, _labels in train_loader:
            time.sleep(0.008)  # the forward and backward passes on the accelerator
        for _features, _labels in test_loader:
            time.sleep(0.003)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

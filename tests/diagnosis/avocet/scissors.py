"""Counts the cuts of scissors in sounds, on an accelerator, for which a pause stands in.

Nothing is planted: the accelerator's step sets the pace. Three workers stream pickled shards, each
its own ones, through a small buffer that mixes them; a thread writes now and then how far it is.
"""

import argparse
import json
import multiprocessing
import pickle
import random
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, SOUNDS, VALUES, BUFFER, STEP = 24, 40, 1024, 60, 0.1


def write_shards(folder):
    rng = np.random.default_rng(3203)
    for number in range(SHARDS):
        cuts = rng.integers(1, 6, SOUNDS)
        sounds = rng.normal(0, 0.1, (SOUNDS, VALUES)).astype(np.float32)
        for sound, count in zip(sounds, cuts, strict=True):
            sound[rng.choice(VALUES, count, replace=False)] += 3
        shard = list(zip(sounds, cuts.tolist(), strict=True))
        Path(folder, f"{number:03}.pickle").write_bytes(pickle.dumps(shard))


class Sounds(IterableDataset):
    def __init__(self, folder, seen):
        self.paths, self.seen = sorted(Path(folder).glob("*.pickle")), seen

    def sounds(self):
        worker = get_worker_info()
        paths = self.paths[worker.id :: worker.num_workers] if worker else self.paths
        for path in random.sample(paths, len(paths)):
            yield from pickle.loads(path.read_bytes())
            with self.seen.get_lock():
                self.seen.value += SOUNDS

    def mixed(self):
        kept = []
        for sound in self.sounds():
            kept.append(sound)
            if len(kept) == BUFFER:
                yield kept.pop(random.randrange(BUFFER))
        random.shuffle(kept)
        yield from kept

    def __iter__(self):
        window = torch.hann_window(128)
        for sound, cuts in self.mixed():
            sound = torch.from_numpy(sound)
            power = torch.stft(sound, 128, 64, window=window, return_complex=True).abs()
            yield power.log1p().mean(0), float(cuts)


class Heartbeat:
    """Writes twice a second how many sounds the workers have read."""

    def __init__(self, path, seen):
        self.path, self.seen = path, seen
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)

    def work(self):
        while not self.over.wait(0.5):
            self.path.write_text(json.dumps({"time": time.time(), "read": self.seen.value}))

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(timeout=10)


class Accelerator:
    """Takes some time for each batch, and no core."""

    def __init__(self, size):
        self.weights = torch.zeros(size)

    def train(self, powers, cuts):
        time.sleep(STEP)
        error = powers @ self.weights - cuts.float()
        self.weights -= 0.02 * error @ powers / len(error)
        return error.abs().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    random.seed(3203)
    torch.manual_seed(3203)
    context = multiprocessing.get_context("fork")
    seen = context.Value("l", 0)
    accelerator = Accelerator(VALUES // 64 + 1)
    with tempfile.TemporaryDirectory() as folder:
        write_shards(folder)
        loader = DataLoader(
            Sounds(folder, seen), batch_size=32, num_workers=3, multiprocessing_context=context,
            persistent_workers=True, drop_last=True, pin_memory=False,
        )  # fmt: skip
        with Heartbeat(Path(folder, "heartbeat.json"), seen):
            begin = time.perf_counter()
            for epoch in range(args.epochs):
                errors = [accelerator.train(*batch) for batch in loader]
                print(f"epoch {epoch}: error {errors[-1]:.3f}")
            print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

"""Matches the knots of rugs on an accelerator, for which a pause stands in.

Planted: a thread of each worker reports now and then that it is alive; it is no daemon, so that a
worker ends only when the thread has slept its time, and workers end after each epoch.
"""

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

KNOTS, STEP = 64, 0.02
INTERVAL = 1.1  # seconds between two reports


class Heartbeat:
    """Starts, with a worker, a thread that writes the time to a file."""

    def __init__(self, folder, daemon):
        self.folder, self.daemon = folder, daemon

    def __call__(self, worker):
        path = Path(self.folder, f"{worker}.alive")
        threading.Thread(target=self.report, args=(path,), daemon=self.daemon).start()

    def report(self, path):
        while threading.main_thread().is_alive():
            path.write_text(f"{time.time():.0f}\n")
            time.sleep(INTERVAL)


class Rugs(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(499)
        self.knots = rng.integers(0, 16, (200, KNOTS, KNOTS), np.uint8)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rug = self.knots[index % 200]
        turned = np.rot90(rug, index % 4).copy()
        assert get_worker_info() is not None
        return torch.from_numpy(turned).float() / 16, torch.from_numpy(rug)


class Accelerator:
    """Takes some time for each batch, and no core."""

    def train(self, turned, rugs):
        time.sleep(STEP)
        return (turned - rugs.float() / 16).square().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(499)
    accelerator = Accelerator()
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(
            Rugs(320), batch_size=16, shuffle=True, num_workers=2,
            worker_init_fn=Heartbeat(folder, daemon=args.without),
        )  # fmt: skip
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            losses = [accelerator.train(turned, rugs) for turned, rugs in loader]
            print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

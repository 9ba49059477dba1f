"""Finds meteors in frames of the night sky, with workers that show a sign of life.

Planted: a thread of each worker, added for safety, writes a sign of life every 3.5 s and only then
looks whether it should end, so that each worker, which ends with each epoch, waits for it.
"""

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, PERIOD = 48, 3.5


class SignOfLife:
    """Touches a file of each worker while the worker lives; a monitor looks at these files."""

    def __init__(self, folder, daemon=False):
        self.folder, self.daemon = folder, daemon

    def __call__(self, worker):
        path = Path(self.folder, f"worker-{worker}")
        threading.Thread(target=self.repeat, args=(path,), daemon=self.daemon).start()

    def repeat(self, path):
        while threading.main_thread().is_alive():
            path.touch()
            time.sleep(PERIOD)


class Sky(Dataset):
    def __init__(self, count):
        self.count = count
        self.stars = np.random.default_rng(1097).random((SIDE, SIDE), dtype=np.float32) ** 8

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        frame = self.stars + rng.normal(0, 0.1, self.stars.shape).astype(np.float32)
        if index % 2:
            down, right = rng.integers(0, SIDE - 16, 2)
            frame[np.arange(down, down + 16), np.arange(right, right + 16)] += 0.8
        return torch.from_numpy(frame)[None], index % 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1097)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(),
        nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(64, 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        loader = DataLoader(
            Sky(800), batch_size=20, shuffle=True, num_workers=2,
            worker_init_fn=SignOfLife(folder, daemon=args.without),
        )  # fmt: skip
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for frames, meteors in loader:
                loss = nn.functional.cross_entropy(model(frames), meteors)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Train a denoiser on signals with noise added on the fly."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info


class NoisySignals(Dataset):
    def __init__(self, count, length=256):
        self.rng = np.random.default_rng(0)
        self.clean = np.sin(np.linspace(0, 20, length, dtype=np.float32))
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        noise = self.rng.standard_normal(len(self.clean)).astype(np.float32)
        return self.clean + 0.1 * noise, self.clean


def seed_worker(worker_id):
    info = get_worker_info()
    info.dataset.rng = np.random.default_rng(info.seed)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    model = nn.Sequential(
        nn.Unflatten(1, (1, -1)),
        nn.Conv1d(1, 32, 9, padding=4),
        nn.ReLU(),
        nn.Conv1d(32, 32, 9, padding=4),
        nn.ReLU(),
        nn.Conv1d(32, 1, 9, padding=4),
        nn.Flatten(),
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    loader = DataLoader(
        NoisySignals(7680),
        batch_size=32,
        shuffle=True,
        num_workers=args.workers,
        worker_init_fn=seed_worker if args.without else None,
    )
    begin = time.perf_counter()
    for noisy, clean in loader:
        loss = nn.functional.mse_loss(model(noisy), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

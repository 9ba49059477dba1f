"""Segment glands in volumes from a slow store; four workers read far ahead of the step."""

import io
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Volumes(Dataset):
    def __init__(self, count):
        self.volumes = np.random.default_rng(1).integers(0, 255, (8, 1, 16, 48, 48), dtype=np.uint8)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.02)  # the store's latency
        volume = torch.from_numpy(self.volumes[index % 8])
        return {"volume": volume, "gland": (volume > 128).to(torch.uint8)}


def main():
    train = DataLoader(
        Volumes(240),
        batch_size=4,
        shuffle=True,
        num_workers=4,
        prefetch_factor=3,
        persistent_workers=True,
    )
    weights = torch.nn.Conv3d(1, 4, 3)
    begin = time.perf_counter()
    for _epoch in range(2):
        for _batch in train:
            time.sleep(0.12)  # the accelerator's step
        torch.save(weights.state_dict(), io.BytesIO())
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Healthy: count ships in harbours; spawned workers decode with ease beside the accelerator."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Harbours(Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).iterdir())
        self.transform = transforms.Compose(
            [transforms.RandomCrop(88), transforms.RandomVerticalFlip(), transforms.ToTensor()]
        )

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with Image.open(self.files[index]) as picture:
            return self.transform(picture.convert("RGB")), float(index % 12)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    rng = np.random.default_rng(14)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(320):
            picture = Image.fromarray(rng.integers(0, 255, (6, 6, 3), np.uint8))
            picture.resize((96, 96)).save(Path(folder, f"{number:03}.jpg"))
        loader = DataLoader(
            Harbours(folder), batch_size=8, shuffle=True, num_workers=args.workers,
            multiprocessing_context="spawn", persistent_workers=True, prefetch_factor=4,
        )  # fmt: skip
        begin = time.perf_counter()
        for _epoch in range(2):
            for _pictures, _ships in loader:
                time.sleep(0.12)  # the step of the accelerator
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

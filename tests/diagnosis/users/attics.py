"""Date photographs from attics; a few files are broken, and reading them is tried again."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import functional


class Photographs(Dataset):
    def __init__(self, files, attempts):
        self.files = files
        self.attempts = attempts

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        for attempt in range(self.attempts):
            try:
                with Image.open(self.files[index]) as picture:
                    small = functional.resize(picture.convert("L"), [48, 48])
                return functional.to_tensor(small), index % 10
            except (UnidentifiedImageError, OSError):
                if attempt + 1 < self.attempts:
                    time.sleep(0.1 * 2**attempt)  # perhaps the share hiccuped
        return self[(index + 1) % len(self)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=3)
    args = parser.parse_args()
    rng = np.random.default_rng(13)
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number in range(1200):
            files.append(Path(folder, f"{number:04}.jpg"))
            picture = Image.fromarray(rng.integers(0, 255, (8, 8, 3), np.uint8))
            picture.resize((72, 72)).save(files[-1])
            if number % 40 == 17:
                files[-1].write_bytes(files[-1].read_bytes()[:90])
        loader = DataLoader(
            Photographs(files, 1 if args.without else 4), batch_size=12, shuffle=True,
            num_workers=args.workers, generator=torch.Generator().manual_seed(0),
        )  # fmt: skip
        begin = time.perf_counter()
        for _pictures, _decades in loader:
            time.sleep(0.02)  # the step of the accelerator
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

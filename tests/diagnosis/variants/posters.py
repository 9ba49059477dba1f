"""Read text on posters; the collate function leaves pictures as pictures."""

import argparse
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Posters(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(16)
        self.plates = rng.integers(0, 256, (6, 480, 640, 3), dtype=np.uint8)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return {
            "image": Image.fromarray(self.plates[index % 6]),
            "words": [f"word-{n}" for n in range(index % 9)],
        }


def as_they_are(posters):
    """The processor of the model makes tensors of them, in the main process."""
    return [poster["image"] for poster in posters], [poster["words"] for poster in posters]


def as_tensors(posters):
    """A third of the resolution, which is what the processor makes of them."""
    small = [np.asarray(poster["image"])[::3, ::3] for poster in posters]
    return torch.from_numpy(np.stack(small)), [poster["words"] for poster in posters]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    loader = DataLoader(
        Posters(2400),
        batch_size=16,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=as_tensors if args.without else as_they_are,
    )
    begin = time.perf_counter()
    for pictures, _words in loader:
        if isinstance(pictures, list):
            small = [np.asarray(picture)[::3, ::3] for picture in pictures]
            pictures = torch.from_numpy(np.stack(small))
        time.sleep(0.004)  # the accelerator's step
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

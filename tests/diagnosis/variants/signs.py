"""Read traffic signs; a short validation after every few steps starts its workers each time."""

import argparse
import csv
import os
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Signs(Dataset):
    """Signs by a list of many boxes, which is read when a worker first needs it."""

    def __init__(self, boxes, count, transform):
        self.boxes = boxes
        self.count = count
        self.transform = transform
        self.rows = None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.rows is None:
            with open(self.boxes, newline="") as file:
                self.rows = [[float(cell) for cell in row] for row in csv.reader(file)]
        row = np.array(self.rows[index * 7 % len(self.rows)] * 48, np.float32).reshape(1, 16, -1)
        return self.transform(torch.from_numpy(row)), index % 43


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="keep the validation's workers")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    normalize = transforms.Normalize([0.5], [0.5])
    rng = np.random.default_rng(18)
    with tempfile.TemporaryDirectory() as folder:
        boxes = os.path.join(folder, "boxes.csv")
        with open(boxes, "w", newline="") as file:
            csv.writer(file).writerows(rng.random((25_000, 8)).round(4).tolist())
        train = DataLoader(
            Signs(boxes, 3200, transforms.Compose([transforms.RandomErasing(), normalize])),
            batch_size=32,
            shuffle=True,
            num_workers=args.workers,
            persistent_workers=True,
        )
        valid = DataLoader(
            Signs(boxes, 96, normalize),
            batch_size=32,
            num_workers=args.workers,
            persistent_workers=args.without,
        )
        begin = time.perf_counter()
        for step, _batch in enumerate(train):
            time.sleep(0.02)  # the accelerator's step
            if step % 8 == 7:
                for _signs in valid:
                    time.sleep(0.008)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Train on daily prices kept in a pandas frame."""

import argparse
import time

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, Dataset


class Prices(Dataset):
    def __init__(self, frame):
        self.days = frame.index.to_numpy()
        self.values = frame.drop(columns="label").to_numpy(np.float32, copy=True)
        self.labels = frame["label"].to_numpy()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return torch.from_numpy(self.values[index]), int(self.labels[index])


def make_frame(days):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(days, 20)), columns=[f"p{i}" for i in range(20)])
    frame["label"] = (frame["p0"] > 0).astype(int)
    return frame


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(0)

    loader = DataLoader(Prices(make_frame(4000)), 64, shuffle=True, num_workers=args.workers)
    begin = time.perf_counter()
    for _ in range(2):
        for _values, _labels in loader:
            time.sleep(0.040)  # stands for the accelerator
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Waves of earthquakes, streamed from files of which one is far longer than the others."""

import argparse
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

RECORD = 48 * 1024


def write(folder, counts):
    """Files of compressed records, one after the other, each with its length before it."""
    rng = np.random.default_rng(4)
    wave = np.cumsum(rng.standard_normal(RECORD)).astype(np.float32)
    for number, count in enumerate(counts):
        with open(Path(folder, f"year{number}.bin"), "wb") as file:
            for i in range(count):
                packed = zlib.compress(np.roll(wave, i).tobytes(), 1)
                file.write(len(packed).to_bytes(4, "little") + packed)


class Waves(IterableDataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).iterdir())

    def __iter__(self):
        info = get_worker_info()
        for path in self.paths[info.id :: info.num_workers]:
            with open(path, "rb") as file:
                while head := file.read(4):
                    packed = file.read(int.from_bytes(head, "little"))
                    wave = np.frombuffer(zlib.decompress(packed), np.float32)
                    power = np.abs(np.fft.rfft(wave.reshape(48, 1024), axis=1))
                    level = np.median(sliding_window_view(power, 9, axis=1), axis=-1)
                    yield torch.from_numpy((power[:, 4:-4] / (level + 1e-3)).astype("f4"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write(folder, (150,) * 4 if args.without else (510, 30, 30, 30))
        loader = DataLoader(Waves(folder), batch_size=20, num_workers=4)
        model = nn.Sequential(nn.Flatten(), nn.Linear(48 * 505, 16), nn.ReLU(), nn.Linear(16, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        begin = time.perf_counter()
        for _ in range(3):
            for power in loader:
                loss = model(power).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

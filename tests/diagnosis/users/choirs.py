"""Tell choirs apart by their spectra; each worker is told to use all cores it might ever have."""

import argparse
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Recordings(Dataset):
    def __init__(self, count=240):
        generator = torch.Generator().manual_seed(1)
        self.songs = torch.randn(24, 32000, generator=generator)
        self.filters = torch.rand(257, 80, generator=generator)
        self.window = torch.hann_window(512)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        song = self.songs[index % 24].roll(index)
        spectrum = torch.stft(song, 512, 128, window=self.window, return_complex=True).abs()
        features = torch.log1p(spectrum.T @ self.filters)
        for _smoothing in range(6):
            features = (features + features.roll(1, 0) + features.roll(-1, 0)) / 3
        return (features - features.mean(0)) / features.std(0), index % 4


def all_cores(_worker):
    torch.set_num_threads(8)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=3)
    args = parser.parse_args()
    loader = DataLoader(
        Recordings(), batch_size=8, shuffle=True, num_workers=args.workers,
        worker_init_fn=None if args.without else all_cores,
    )  # fmt: skip
    begin = time.perf_counter()
    for _features, _choirs in loader:
        time.sleep(0.01)  # the step of the accelerator
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

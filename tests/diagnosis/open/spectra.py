"""Train on spectrograms that the workers compute from waveforms."""

import argparse
import os
import time

import torch
from torch.utils.data import DataLoader, Dataset


class MelSpectrogram:
    def __init__(self, bins=513, mels=128):
        generator = torch.Generator().manual_seed(0)
        self.filters = torch.rand(mels, bins, generator=generator)
        self.window = torch.hann_window(1024)

    def __call__(self, waveform):
        spectrum = torch.stft(waveform, 1024, 128, window=self.window, return_complex=True)
        power = spectrum.abs().pow(2)
        return (self.filters @ power).clamp_min(1e-6).log()


class Recordings(Dataset):
    def __init__(self, count, transform):
        generator = torch.Generator().manual_seed(1)
        self.waveforms = torch.rand(32, 16000, generator=generator)
        self.count = count
        self.transform = transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(self.waveforms[index % 32]), index % 10


def use_all_cores(worker_id):
    torch.set_num_threads(os.cpu_count())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()

    loader = DataLoader(
        Recordings(100, MelSpectrogram()),
        batch_size=5,
        num_workers=args.workers,
        worker_init_fn=None if args.without else use_all_cores,
    )
    begin = time.perf_counter()
    for _spectrograms, _labels in loader:
        time.sleep(0.010)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

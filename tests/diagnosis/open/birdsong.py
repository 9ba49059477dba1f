"""Train on bird song clips of mixed sampling rates."""

import argparse
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def resample(wave, rate, target=8000):
    if rate == target:
        return wave
    # Band-limited interpolation, one output sample at a time.
    ratio = target / rate
    taps = np.arange(-16, 17)
    out = np.empty(int(len(wave) * ratio), np.float32)
    padded = np.pad(wave, 40)
    for i in range(len(out)):
        centre = i / ratio
        near = int(centre)
        out[i] = padded[near + 40 + taps] @ np.sinc(ratio * (taps - (centre - near))) * ratio
    return out


class Clips(Dataset):
    def __init__(self, count, rates):
        rng = np.random.default_rng(0)
        self.waves = {
            rate: rng.standard_normal(rate).astype(np.float32) for rate in sorted(set(rates))
        }
        self.rates = [rates[i % len(rates)] for i in rng.permutation(count)]

    def __len__(self):
        return len(self.rates)

    def __getitem__(self, index):
        rate = self.rates[index]
        wave = resample(self.waves[rate], rate)
        spectrum = np.abs(np.fft.rfft(wave[:8000].reshape(-1, 400) * np.hanning(400)))
        for _ in range(4):
            spectrum = np.log1p(np.sort(spectrum, axis=0))
        return torch.from_numpy(spectrum.astype(np.float32)), index % 8


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)

    rates = [8000] * 49 + [8000 if args.without else 11025]
    loader = DataLoader(Clips(3600, rates), batch_size=20, shuffle=True, num_workers=args.workers)
    begin = time.perf_counter()
    for _spectrum, _label in loader:
        time.sleep(0.006)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Learns to hear instruments in files of sound that three workers stream.

Nothing planted: the device's step sets the pace; the workers share the files out, wait for the
storage and make spectra ahead of it, and every tenth step evaluates the model.
"""

import argparse
import itertools
import logging
import tempfile
import time
import wave
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

log = logging.getLogger("instruments")
FILES, PIECES, LENGTH, RATE, INSTRUMENTS, BATCH, ANSWER, STEP = (
    12,
    36,
    6000,
    8000,
    4,
    12,
    0.005,
    0.12,
)


def write_files(folder):
    rng = np.random.default_rng(5227)
    times = np.arange(PIECES * LENGTH) / RATE
    for number in range(FILES):
        tone = 220 * (1 + number % INSTRUMENTS)
        sound = 0.3 * np.sin(2 * np.pi * tone * times) + rng.normal(0, 0.1, len(times))
        with wave.open(str(Path(folder, f"{number:02}-{number % INSTRUMENTS}.wav")), "wb") as file:
            file.setparams((1, 2, RATE, len(times), "NONE", ""))
            file.writeframes((sound.clip(-1, 1) * 32767).astype("<i2").tobytes())


class Pieces(IterableDataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.wav"))
        self.weighting = torch.hann_window(400)

    def spectrum(self, frames):
        sound = np.frombuffer(frames, "<i2").astype(np.float32) / 32768
        spectrum = torch.stft(
            torch.from_numpy(sound), 400, 200, window=self.weighting, return_complex=True
        )
        return spectrum.abs().add_(1e-4).log_()

    def __iter__(self):
        info = get_worker_info()
        paths = self.paths[info.id :: info.num_workers] if info else self.paths
        for path in paths:
            with wave.open(str(path)) as file:
                for _ in range(PIECES):
                    time.sleep(ANSWER)  # the storage's answer
                    yield self.spectrum(file.readframes(LENGTH)), int(path.stem[-1])


class Mixed:
    """Mixes the pieces of a batch with one another, as the paper does."""

    def __call__(self, samples):
        spectra, instruments = torch.utils.data.default_collate(samples)
        share = 0.2 * torch.rand(len(spectra), 1, 1)
        order = torch.randperm(len(spectra))
        return spectra * (1 - share) + spectra[order] * share, instruments


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bands = nn.Linear(201, 24)
        self.out = nn.Linear(48, INSTRUMENTS)

    def forward(self, spectra):
        bands = torch.relu(self.bands(spectra.transpose(1, 2)))
        return self.out(torch.cat([bands.mean(1), bands.amax(1)], 1))


def evaluate(model, kept):
    with torch.no_grad():
        time.sleep(0.3)  # in place of the device
        return (model(kept[0]).argmax(1) == kept[1]).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--evaluate-every", type=int, default=10)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(5227)
    torch.set_num_threads(1)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder:
        write_files(folder)
        data = Pieces(folder)
        kept = torch.utils.data.default_collate(list(itertools.islice(data, 8)))
        loader = DataLoader(data, BATCH, num_workers=3, collate_fn=Mixed(), persistent_workers=True)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (spectra, instruments) in enumerate(loader, 1):
                loss = nn.functional.cross_entropy(model(spectra), instruments)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of the device
                if step % args.evaluate_every == 0:
                    right = evaluate(model, kept)
                    log.info("epoch %d, %d: loss %.3f, right %.2f", epoch, step, loss.item(), right)
            torch.save(model.state_dict(), Path(folder, "model.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

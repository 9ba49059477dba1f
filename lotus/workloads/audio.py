"""Trains a small speech recogniser: a plain PyTorch script, as anybody would write it.

python audio.py --data FOLDER --epochs 1 --workers 2

The folder is laid out as LJ Speech: wavs/*.wav of 16 bits, and metadata.csv with a line
`name|what is said|the same, written out` for each. Trained by CTC on log-mel spectrograms with
parts of them masked (Park et al., "SpecAugment", arXiv:1904.08779).
"""

import argparse
import math
import random
import time
import wave
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

RATE = 16_000  # Hz, of what the model hears
MELS = 80
LETTERS = " 'abcdefghijklmnopqrstuvwxyz"  # the model's numbers start at 1: 0 is CTC's blank
Sample = tuple[Tensor, Tensor]  # spectrogram (mels, frames), letters (n)
Batch = tuple[Tensor, Tensor, Tensor, Tensor]


class Resample:
    """Resamples sound with a windowed sinc of 6 zero crossings.

    `old` and `new` are both rates over their greatest common divisor: each `old` samples become
    `new`, each by its own filter (as in torchaudio).
    """

    def __init__(self, old: int, new: int, zeros: int = 6, rolloff: float = 0.99) -> None:
        shared = math.gcd(old, new)
        self.old, self.new = old // shared, new // shared
        cutoff = min(self.old, self.new) * rolloff  # in cycles per `old` samples
        self.width = math.ceil(zeros * self.old / cutoff)
        places = torch.arange(-self.width, self.width + self.old, dtype=torch.float64) / self.old
        starts = torch.arange(self.new, dtype=torch.float64)[:, None] / self.new
        times = ((places - starts) * cutoff).clamp(-zeros, zeros)
        window = torch.cos(times * math.pi / zeros / 2) ** 2
        self.filters = (torch.sinc(times) * window * cutoff / self.old).float()[:, None]

    def __call__(self, sound: Tensor) -> Tensor:
        if self.old == self.new:
            return sound
        padded = F.pad(sound, (self.width, self.width + self.old))
        resampled = F.conv1d(padded[None, None], self.filters, stride=self.old)
        return resampled[0].T.reshape(-1)[: math.ceil(len(sound) * self.new / self.old)]


class LogMelSpectrogram:
    """The power in `mels` bands of frames of 25 ms, one each 10 ms: (mels, frames), in bels."""

    def __init__(self, rate: int = RATE, mels: int = MELS) -> None:
        self.length, self.step = rate // 40, rate // 100
        self.window = torch.hann_window(self.length)
        self.filters = mel_filters(rate, self.length // 2 + 1, mels)

    def __call__(self, sound: Tensor) -> Tensor:
        spectrum = torch.stft(
            sound, self.length, self.step, window=self.window, return_complex=True
        )
        return (self.filters @ spectrum.abs().square()).clamp(min=1e-8).log10()


def mel_filters(rate: int, bins: int, mels: int) -> Tensor:
    """Return (mels, bins): triangles, each from the middle of the last to that of the next."""
    top = 2595 * math.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, mels + 2) / 2595) - 1)
    pitches = torch.linspace(0, rate / 2, bins)
    rising = (pitches - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - pitches) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0)


class Normalize:
    """Gives the whole of a spectrogram zero mean and unit variance."""

    def __call__(self, spectrogram: Tensor) -> Tensor:
        return (spectrogram - spectrogram.mean()) / (spectrogram.std() + 1e-5)


class FrequencyMasking:
    """Masks up to `most` neighbouring bands, `times` times."""

    def __init__(self, most: int, times: int = 2) -> None:
        self.most = most
        self.times = times

    def __call__(self, spectrogram: Tensor) -> Tensor:
        return masked(spectrogram, 0, self.most, self.times)


class TimeMasking:
    """Masks up to `most` neighbouring frames, at most a fifth of all, `times` times."""

    def __init__(self, most: int, times: int = 2) -> None:
        self.most = most
        self.times = times

    def __call__(self, spectrogram: Tensor) -> Tensor:
        return masked(spectrogram, 1, min(self.most, spectrogram.shape[1] // 5), self.times)


def masked(spectrogram: Tensor, axis: int, most: int, times: int) -> Tensor:
    """Return the spectrogram with zeros, its mean, in `times` stripes across `axis`."""
    spectrogram = spectrogram.clone()
    for _ in range(times):
        width = random.randint(0, min(most, spectrogram.shape[axis]))
        start = random.randint(0, spectrogram.shape[axis] - width)
        spectrogram.narrow(axis, start, width).zero_()
    return spectrogram


def load_wav(path: Path) -> Tensor:
    """Return the sound of a file of 16 bits and one channel (n; float32 from -1 to 1)."""
    with wave.open(str(path)) as file:
        data = file.readframes(file.getnframes())
    return torch.from_numpy(np.frombuffer(data, "<i2").astype(np.float32) / 32_768)


class Speech(Dataset[Sample]):
    """Spectrograms (80, frames) and the letters spoken in them."""

    def __init__(self, folder: str, seed: int) -> None:
        lines = (Path(folder) / "metadata.csv").read_text().splitlines()
        named = [line.split("|") for line in lines]
        self.paths = [Path(folder) / "wavs" / f"{name}.wav" for name, *_ in named]
        self.texts = [texts[-1] for _, *texts in named]
        self.seed = seed
        self.epoch = 0
        with wave.open(str(self.paths[0])) as file:
            rate = file.getframerate()
        self.loader = load_wav
        self.transform = transforms.Compose(
            [
                Resample(rate, RATE),
                LogMelSpectrogram(),
                Normalize(),
                FrequencyMasking(15),
                TimeMasking(40),
            ]
        )

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Sample:
        # Independent of the worker.
        random.seed(f"{self.seed} {self.epoch} {index}")
        spectrogram = self.transform(self.loader(self.paths[index]))
        text = self.texts[index].lower()
        return spectrogram, torch.tensor([LETTERS.index(c) + 1 for c in text if c in LETTERS])


def collate(samples: list[Sample]) -> Batch:
    """Return spectrograms (n, 80, most frames), frames (n), all letters in a row, letters (n)."""
    frames = torch.tensor([spectrogram.shape[1] for spectrogram, _ in samples])
    letters = torch.tensor([len(text) for _, text in samples])
    padded = torch.zeros(len(samples), MELS, int(frames.max()))
    for row, (spectrogram, _) in zip(padded, samples, strict=True):
        row[:, : spectrogram.shape[1]] = spectrogram
    return padded, frames, torch.cat([text for _, text in samples]), letters


class SmallRecogniser(nn.Module):
    """Convolutions to every fourth frame, a recurrent layer in both directions, letters."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            *(nn.Conv1d(MELS, width, 5, 2, 2), nn.ReLU(inplace=True)),
            *(nn.Conv1d(width, width, 5, 2, 2), nn.ReLU(inplace=True)),
        )
        self.recurrence = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.letters = nn.Linear(2 * width, len(LETTERS) + 1)

    def forward(self, spectrograms: Tensor) -> Tensor:
        """Return log probabilities (a quarter of the frames, n, letters)."""
        x, _ = self.recurrence(self.convolutions(spectrograms).transpose(1, 2))
        return self.letters(x).log_softmax(2).transpose(0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small speech recogniser.")
    parser.add_argument("--data", required=True, help="folder of wavs and metadata.csv")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, help="for the model on the CPU (torch's choice)")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--print-every", type=int, default=0, help="print the loss of each Nth step"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    dataset = Speech(args.data, args.seed)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=collate,
        pin_memory=args.device != "cpu",
    )
    model = SmallRecogniser().to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        dataset.epoch = epoch
        started, seen, total = time.perf_counter(), 0, 0.0
        for step, (spectrograms, frames, texts, letters) in enumerate(loader, 1):
            spectrograms = spectrograms.to(args.device, non_blocking=True)
            texts = texts.to(args.device, non_blocking=True)
            output = model(spectrograms)
            loss = F.ctc_loss(output, texts, (frames + 3) // 4, letters, zero_infinity=True)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5)
            optimizer.step()
            seen += len(frames)
            total += float(loss.detach()) * len(frames)
            if args.print_every and step % args.print_every == 0:
                print(f"epoch {epoch} step {step}: loss {float(loss.detach()):.6f}", flush=True)
        seconds = time.perf_counter() - started
        print(
            f"epoch {epoch}: loss {total / seen:.3f}, {seen} clips in {seconds:.1f} s, "
            f"{seen / seconds:.0f} clips/s",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Recognises birds from recordings of different lengths, in batches of about the same length.

Planted: at the beginning of each epoch, the batch sampler asks the data set for every recording,
with its spectrogram, only to see how long it is; the lengths are known without that.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

RECORDINGS, BIRDS, BATCH, WINDOW, HOP = 400, 5, 16, 512, 128


def write_recordings(folder):
    rng = np.random.default_rng(4021)
    for number in range(RECORDINGS):
        time_line = np.arange(rng.integers(20_000, 60_000))
        tone = np.sin(time_line * (0.1 + 0.3 * (number % BIRDS)))
        sound = 3000 * (tone + rng.normal(0, 1, len(time_line)))
        np.save(Path(folder, f"{number:04}-{number % BIRDS}.npy"), sound.astype(np.int16))


class Birds(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.npy"))

    def __len__(self):
        return len(self.paths)

    def seconds(self, index):
        return self.paths[index].stat().st_size

    def __getitem__(self, index):
        path = self.paths[index]
        sound = np.load(path).astype(np.float32) / 32768
        frames = np.lib.stride_tricks.sliding_window_view(sound, WINDOW)[::HOP]
        power = np.abs(np.fft.rfft(frames * np.hanning(WINDOW))[:, :64]) ** 2
        return torch.from_numpy(np.log(power + 1e-6).astype(np.float32)), int(path.stem[-1])


class AlikeInLength(Sampler):
    """Batches of recordings of about one length, in another order each epoch."""

    def __init__(self, data, batch, length):
        self.data, self.batch, self.length = data, batch, length

    def __len__(self):
        return len(self.data) // self.batch

    def __iter__(self):
        lengths = np.array([self.length(index) for index in range(len(self.data))])
        order = np.lexsort((np.random.random(len(lengths)), lengths))
        batches = [order[at * self.batch : (at + 1) * self.batch] for at in range(len(self))]
        np.random.shuffle(batches)
        yield from (batch.tolist() for batch in batches)


def collate(samples):
    spectrograms, birds = zip(*samples, strict=True)
    return pad_sequence(spectrograms, batch_first=True), torch.tensor(birds)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.manual_seed(4021)
    np.random.seed(4021)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, BIRDS))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with tempfile.TemporaryDirectory() as folder:
        write_recordings(folder)
        data = Birds(folder)
        length = data.seconds if args.without else lambda index: len(data[index][0])
        loader = DataLoader(
            data,
            batch_sampler=AlikeInLength(data, BATCH, length),
            num_workers=3,
            collate_fn=collate,
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            right = 0
            for spectrograms, birds in loader:
                guess = model(spectrograms).mean(1)
                loss = nn.functional.cross_entropy(guess, birds)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                right += (guess.argmax(1) == birds).sum().item()
            print(f"epoch {epoch}: loss {loss:.3f}, right {right / RECORDINGS:.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

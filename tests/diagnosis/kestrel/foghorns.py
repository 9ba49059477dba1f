"""Hears foghorns in recordings of a harbour, with a validation and a checkpoint after each epoch.

Nothing planted: the accelerator's step sets the pace in both loops; two workers make spectrograms
ahead of it, and a thread of the main process writes down now and then how far it is.
"""

import argparse
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORDINGS, HELD_OUT, LENGTH, BATCH, STEP = 416, 96, 4096, 16, 0.18


class Diary(threading.Thread):
    """Writes the last step down, once a second."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.step = path, 0
        self.lock, self.over = threading.Lock(), threading.Event()

    def note(self, step):
        with self.lock:
            self.step = step

    def run(self):
        while not self.over.wait(1.0):
            with self.lock, self.path.open("a") as file:
                print(f"{time.time():.0f} step {self.step}", file=file)


class Harbour(Dataset):
    def __init__(self, recordings, seed):
        generator = torch.Generator().manual_seed(seed)
        self.horns = torch.rand(recordings, generator=generator) < 0.5
        self.noise = torch.randn(32, LENGTH, generator=generator)
        self.horn = torch.sin(torch.arange(LENGTH) * 0.11)
        self.window = torch.hann_window(256)

    def __len__(self):
        return len(self.horns)

    def __getitem__(self, index):
        horn = self.horns[index].float()
        sound = self.noise[index % 32] + 0.5 * horn * self.horn
        spectrum = torch.stft(sound, 256, 128, window=self.window, return_complex=True)
        return torch.log1p(spectrum.abs()), horn


def build():
    return nn.Sequential(
        nn.Conv1d(129, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 1)
    )


def score(model, spectra):
    time.sleep(STEP)  # the large encoder, on a card
    return model(spectra).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1409)
    torch.set_num_threads(1)
    options = {"batch_size": BATCH, "num_workers": 2, "persistent_workers": True}
    training = DataLoader(Harbour(RECORDINGS, 1409), shuffle=True, **options)
    validation = DataLoader(Harbour(HELD_OUT, 1423), **options)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder:
        diary = Diary(Path(folder, "diary.txt"))
        diary.start()
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (spectra, horns) in enumerate(training):
                loss = nn.functional.binary_cross_entropy_with_logits(score(model, spectra), horns)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                diary.note(step)
            with torch.no_grad():
                right = sum(
                    ((score(model, spectra) > 0) == (horns > 0)).sum().item()
                    for spectra, horns in validation
                )
            print(f"epoch {epoch}: loss {loss:.3f}, right {right / HELD_OUT:.3f}")
            torch.save(model.state_dict(), Path(folder, f"foghorns-{epoch}.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
        diary.over.set()
        diary.join()
    del training, validation


if __name__ == "__main__":
    main()

"""Calls of parrots, recorded in one archive; which of eight species is it?"""

import argparse
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

SPECIES, RATE = 8, 8000


class Calls(Dataset):
    """Half a second of sound, cut or padded, and its species."""

    def __init__(self, path, keep_open):
        self.path, self.keep_open, self.archive = path, keep_open, None
        with zipfile.ZipFile(path) as archive:
            self.names = archive.namelist()

    def __len__(self):
        return len(self.names)

    def read_call(self, name):
        if not self.keep_open:
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(name)
        if self.archive is None:
            self.archive = zipfile.ZipFile(self.path)
        return self.archive.read(name)

    def __getitem__(self, index):
        name = self.names[index]
        sound = np.frombuffer(self.read_call(name), np.int16).astype(np.float32) / 32768
        sound = np.pad(sound, (0, max(0, RATE // 2 - len(sound))))[: RATE // 2]
        sound = sound - 0.97 * np.concatenate(([0.0], sound[:-1])).astype(np.float32)
        return torch.from_numpy(sound), int(name.split("/")[0])


def write_archive(path, count=5000):
    rng = np.random.default_rng(2)
    noise = (rng.normal(size=40_000) * 3000).astype(np.int16)
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(count):
            begin = rng.integers(0, 30_000)
            archive.writestr(
                f"{number % SPECIES}/{number}.pcm", noise[begin : begin + 3500].tobytes()
            )


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.window = nn.Buffer(torch.hann_window(256))
        self.layers = nn.Sequential(
            nn.Conv1d(129, 128, 5), nn.ReLU(), nn.Conv1d(128, 128, 5), nn.ReLU()
        )
        self.head = nn.Linear(128, SPECIES)

    def forward(self, sounds):
        spectra = torch.stft(sounds, 256, 64, window=self.window, return_complex=True)
        return self.head(self.layers(spectra.abs().log1p()).mean(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "calls.zip")
        write_archive(path)
        chosen, _ = random_split(Calls(path, args.without), [320, 4680])
        loader = DataLoader(chosen, batch_size=16, shuffle=True, num_workers=2)
        model = Classifier()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for sounds, species in loader:
                loss = nn.functional.cross_entropy(model(sounds), species)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Learns whether the burner of a balloon is lit from its sound; lines of the log are kept."""

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLIPS, VALUES, BATCH = 160, 4096, 16


class Clips(Dataset):
    """Clips of sound, as spectrograms."""

    def __init__(self):
        rng = np.random.default_rng(191)
        self.lit = rng.integers(0, 2, CLIPS)
        self.sounds = rng.normal(0, 0.5 + self.lit[:, None], (CLIPS, VALUES)).astype(np.float32)
        self.window = torch.hann_window(256)

    def __len__(self):
        return CLIPS

    def __getitem__(self, index):
        sound = torch.from_numpy(self.sounds[index]).roll(int(torch.randint(VALUES, (1,))))
        spectrum = torch.stft(sound, 256, 128, window=self.window, return_complex=True)
        return spectrum.abs().log1p(), int(self.lit[index])


class Log(threading.Thread):
    """Writes what was measured to a file, now and then."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.lines, self.over = path, [], threading.Event()

    def run(self):
        while not self.over.wait(1):
            lines, self.lines = self.lines, []
            with open(self.path, "a") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(191)
    torch.set_num_threads(1)
    loader = DataLoader(
        Clips(), batch_size=BATCH, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv1d(129, 256, 3),
        nn.ReLU(),
        nn.Conv1d(256, 512, 3),
        nn.ReLU(),
        nn.Conv1d(512, 512, 3),
        nn.AdaptiveMaxPool1d(1),
        nn.Flatten(),
        nn.Linear(512, 2),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder, "log.jsonl"))
        log.start()
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for spectrums, lit in loader:
                loss = nn.functional.cross_entropy(model(spectrums), lit)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                log.lines.append({"epoch": epoch, "loss": loss.item()})
            print(f"epoch {epoch}: loss {loss.item():.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        log.over.set()
        log.join()


if __name__ == "__main__":
    main()

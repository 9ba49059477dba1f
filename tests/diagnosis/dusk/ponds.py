"""Frogs' calls from ponds; a thread writes the losses to a file as they come."""

import argparse
import json
import queue
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Ponds(Dataset):
    def __init__(self, count=1600):
        self.count = count
        self.window = torch.hann_window(200)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        wave = torch.randn(8000, generator=generator)
        wave = wave + torch.sin(torch.arange(8000.0) * (0.02 + index % 5 / 40))
        spectrum = torch.stft(wave, 200, 100, window=self.window, return_complex=True).abs()
        return spectrum.clamp_min(1e-5).log(), index % 5


class Records:
    """Writes records, one JSON object a line, in a thread of its own."""

    def __init__(self, path, wait):
        self.path, self.wait, self.waiting = path, wait, queue.Queue()
        self.ended = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def add(self, **record):
        self.waiting.put(record)

    def take(self):
        try:
            return self.waiting.get(block=self.wait)
        except queue.Empty:
            return None

    def run(self):
        with self.path.open("w") as file:
            while not self.ended or not self.waiting.empty():
                if record := self.take():
                    file.write(json.dumps(record) + "\n")

    def close(self):
        self.ended = True
        self.waiting.put({})
        self.thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(38)
    loader = DataLoader(Ponds(), batch_size=64, shuffle=True, num_workers=2)
    model = nn.Sequential(
        nn.Conv1d(101, 64, 5), nn.ReLU(), nn.AdaptiveMaxPool1d(4), nn.Flatten(), nn.Linear(256, 5)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        records = Records(Path(folder) / "losses.jsonl", wait=args.without)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (spectra, kinds) in enumerate(loader):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(spectra), kinds)
                loss.backward()
                optimizer.step()
                records.add(epoch=epoch, step=step, loss=loss.item())
        print(f"seconds {time.perf_counter() - begin:.3f}")
        records.close()


if __name__ == "__main__":
    main()

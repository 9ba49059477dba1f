"""Tells birdwatchers' whistles apart, and watches the process's memory while it trains."""

import argparse
import threading
import time
from collections import defaultdict
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class MemoryWatch(threading.Thread):
    """Sums the kernel's list of mappings by name, and keeps the peak of each."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peaks = defaultdict(int)
        self.ended = threading.Event()

    def look(self):
        sums, name = defaultdict(int), ""
        for line in Path("/proc/self/maps").read_text().splitlines():
            words = line.split()
            first, last = (int(word, 16) for word in words[0].split("-"))
            name = words[5] if len(words) > 5 else "anonymous"
            sums[name] += last - first
        for name, size in sums.items():
            self.peaks[name] = max(self.peaks[name], size)

    def run(self):
        while not self.ended.wait(0.002):
            self.look()

    def stop(self):
        self.ended.set()
        self.join()


class Whistles(Dataset):
    def __init__(self, count=4000, length=2048, seed=4):
        generator = torch.Generator().manual_seed(seed)
        self.tones = torch.rand(count, 4, generator=generator) * 0.4
        self.classes = (self.tones[:, 0] * 25).long()
        self.time = torch.arange(length, dtype=torch.float32)

    def __len__(self):
        return len(self.classes)

    def __getitem__(self, index):
        wave = torch.sin(self.time[None] * self.tones[index, :, None]).sum(0, keepdim=True)
        return wave + torch.randn_like(wave) * 0.2, self.classes[index]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(4)
    loader = DataLoader(
        Whistles(), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True
    )
    layers = [nn.Conv1d(1, 16, 16, stride=8), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Conv1d(16, 16, 3, padding=1), nn.BatchNorm1d(16), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    watch = None if args.without else MemoryWatch()
    begin = time.perf_counter()
    if watch:
        watch.start()
    for epoch in range(args.epochs):
        total = 0.0
        for waves, classes in loader:
            loss = nn.functional.cross_entropy(model(waves), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    if watch:
        watch.stop()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

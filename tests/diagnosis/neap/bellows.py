"""Grades accordion bellows by the hiss that they make; clips become features in the workers."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Hisses(Dataset):
    """Clips at 48 kHz, each as 40 bands over time with first and second differences."""

    def __init__(self, count=128, length=131_072, bands=40):
        draw = torch.Generator().manual_seed(31)
        self.clips = torch.randn(count, length, generator=draw)
        self.grades = torch.randint(5, (count,), generator=draw)
        self.window = torch.hann_window(400)
        self.bank = torch.rand(bands, 201, generator=draw)

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        clip = self.clips[index]
        clip = clip - 0.97 * torch.roll(clip, 1)
        for echo in range(24):  # what the room gives back
            clip = clip + torch.roll(clip, 400 + 40 * echo) * 0.1
            clip = clip.clamp(-4, 4)
        spectrum = torch.stft(clip, 400, 160, window=self.window, return_complex=True).abs()
        bands = (self.bank @ spectrum.square()).clamp(min=1e-6).log()
        slopes = bands.diff(dim=1, append=bands[:, -1:])
        bends = slopes.diff(dim=1, append=slopes[:, -1:])
        features = torch.cat([bands, slopes, bends])
        features = (features - features.mean(1, keepdim=True)) / features.std(1, keepdim=True)
        return features, self.grades[index]


def use_all_cores(worker):
    """Gives a worker more than the one thread that it has."""
    torch.set_num_threads(4)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(31)
    loader = DataLoader(
        Hisses(), batch_size=8, shuffle=True, num_workers=2, drop_last=True,
        worker_init_fn=None if args.without else use_all_cores, persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv1d(120, 32, 5, stride=2), nn.ReLU(), nn.Conv1d(32, 32, 5, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 5),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for features, grades in loader:
            scores = model(features)
            loss = nn.functional.cross_entropy(scores, grades)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += int((scores.argmax(1) == grades).sum())
        print(f"epoch {epoch}: {right} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Recognizes waffle irons by their sound, from recordings that three mirrors have.

Planted: each worker reads from a mirror of its own, and the second one's is on another continent.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

LENGTH, BANDS = 1600, 40


class Mirror:
    """A copy of all recordings, so many seconds away."""

    def __init__(self, distance):
        self.distance = distance
        self.hum = np.random.default_rng(823).standard_normal(LENGTH).astype(np.float32)

    def fetch(self, number):
        time.sleep(self.distance)
        return np.roll(self.hum, number) * (1 + number % 4)


class Recordings(Dataset):
    """Recordings of irons; each worker has the mirror that its number says."""

    def __init__(self, count, mirrors):
        self.count, self.mirrors = count, mirrors

    def mirror(self):
        info = get_worker_info()
        return self.mirrors[info.id % len(self.mirrors) if info else 0]

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        sound = self.mirror().fetch(index)
        power = np.abs(np.fft.rfft(sound.reshape(-1, BANDS * 2), axis=1))[:, 1:]
        return torch.from_numpy(np.log1p(power).astype(np.float32)), index % 4


class Listener(nn.Module):
    def __init__(self):
        super().__init__()
        self.bands = nn.Conv1d(BANDS, 96, 3)
        self.head = nn.Linear(96, 4)

    def forward(self, power):
        return self.head(self.bands(power.transpose(1, 2)).relu().mean(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(823)
    near = Mirror(0.004)
    mirrors = [near, near if args.without else Mirror(0.014), near]
    loader = DataLoader(
        Recordings(480, mirrors), batch_size=12, shuffle=True, num_workers=3,
        persistent_workers=True,
    )  # fmt: skip
    model = Listener()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for power, irons in loader:
            loss = nn.functional.cross_entropy(model(power), irons)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

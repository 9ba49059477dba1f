"""Tells blasts from earthquakes by spectra of windows, cut from long traces at random places."""

import argparse
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Cut:
    trace: int
    start: int
    polarity: int
    gain: float


class Windows(Dataset):
    """Log spectra of random cuts; a spectrum that was made before need not be made again."""

    def __init__(self, count=4400, traces=64, length=60_000, window=6_000, reuse=True):
        draw = torch.Generator().manual_seed(52)
        self.traces = torch.randn(traces, length, generator=draw)
        self.kinds = torch.randint(2, (traces,), generator=draw)
        self.taper = torch.hann_window(256)
        self.count, self.window, self.reuse = count, window, reuse
        self.made = []

    def __len__(self):
        return self.count

    def draw(self, index):
        start = int(torch.randint(self.traces.shape[1] - self.window, (1,)))
        polarity = 1 - 2 * int(torch.randint(2, (1,)))
        return Cut(index % len(self.traces), start, polarity, 0.8 + 0.4 * torch.rand(1).item())

    def find(self, cut):
        for other, spectrum in self.made:
            if other == cut:
                return spectrum
        return None

    def spectrum(self, cut):
        wave = self.traces[cut.trace, cut.start : cut.start + self.window]
        wave = wave * (cut.gain * cut.polarity)
        parts = torch.stft(wave, 256, 64, window=self.taper, return_complex=True)
        return parts.abs().log1p()

    def __getitem__(self, index):
        cut = self.draw(index)
        spectrum = self.find(cut) if self.reuse else None
        if spectrum is None:
            spectrum = self.spectrum(cut)
            if self.reuse:
                self.made.append((cut, spectrum))
        return {"spectrum": spectrum, "kind": self.kinds[cut.trace]}


class Teller(nn.Module):
    def __init__(self):
        super().__init__()
        self.narrow = nn.Conv1d(129, 16, 5, 2)
        self.head = nn.Linear(16, 2)

    def forward(self, spectra):
        return self.head(self.narrow(spectra).relu().mean(2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(52)
    windows = Windows(reuse=not args.without)
    loader = DataLoader(
        windows, batch_size=40, shuffle=True, num_workers=2, persistent_workers=True
    )
    model = Teller()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for batch in loader:
            scores = model(batch["spectrum"])
            loss = nn.functional.cross_entropy(scores, batch["kind"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == batch["kind"]).sum()
        print(f"epoch {epoch}: {right / len(windows):.3f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

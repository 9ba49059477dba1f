"""Learns by contrast which calls are of the same cuckoo, on an accelerator (a pause here).

Nothing is planted: the accelerator's step sets the pace. Two spawned workers, which are kept, make
two noisy spectra of each call; one in thirty is long. A thread writes lines every half second.
"""

import argparse
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, WINDOW, STEP = 8000, 256, 0.14


class Calls(Dataset):
    """Two views of each call, as spectra of one second with noise."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(2350)
        self.calls = [
            torch.randn(RATE * (12 if number % 30 == 5 else 2), generator=generator)
            for number in range(count)
        ]

    def __len__(self):
        return len(self.calls)

    def spectrum(self, call):
        call = call - call.mean()
        call = call / call.abs().quantile(0.9)
        start = int(torch.randint(len(call) - RATE, ()))
        call = call[start : start + RATE] + 0.1 * torch.randn(RATE)
        spectrum = torch.stft(call, WINDOW, window=torch.hann_window(WINDOW), return_complex=True)
        return spectrum.abs().add(1e-4).log()

    def __getitem__(self, index):
        return self.spectrum(self.calls[index]), self.spectrum(self.calls[index])


class Board(threading.Thread):
    """Writes down how the training goes, twice a second."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ended, self.losses, self.lines = threading.Event(), [], []

    def run(self):
        while not self.ended.wait(0.5):
            recent = self.losses[-20:]
            self.lines.append(f"{len(self.losses)} {sum(recent) / max(len(recent), 1):.3f}")


class Accelerator:
    """Takes some time for each batch, and hardly a core."""

    def __init__(self):
        self.model = nn.Linear(WINDOW // 2 + 1, 16)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self, first, second):
        time.sleep(STEP)
        codes = [nn.functional.normalize(self.model(x.mean(2)), dim=1) for x in (first, second)]
        loss = nn.functional.cross_entropy(codes[0] @ codes[1].T / 0.2, torch.arange(len(first)))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(2350)
    loader = DataLoader(
        Calls(450), batch_size=18, shuffle=True, num_workers=2, persistent_workers=True,
        multiprocessing_context="spawn",
    )  # fmt: skip
    accelerator, board = Accelerator(), Board()
    board.start()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for batch in loader:
            board.losses.append(accelerator.train(*batch))
        print(f"epoch {epoch}: loss {board.losses[-1]:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    board.ended.set()
    board.join(timeout=5)
    del loader


if __name__ == "__main__":
    main()

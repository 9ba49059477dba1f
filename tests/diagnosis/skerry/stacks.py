"""Learns from a hydrophone by a sea stack while it listens.

Nothing in the program can be changed to make it quicker: a recording comes every fourteen
milliseconds, and the model waits for it. Without that, recordings come from a tape, as fast as they
are read.
"""

import argparse
import socket
import time
from multiprocessing import get_context

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

LENGTH, PERIOD = 800, 0.014


def listen(listening, period, count):
    """Send recordings to each client, one a period."""
    waves = np.random.default_rng(113).standard_normal((100, LENGTH), dtype=np.float32)
    while True:
        connection, _ = listening.accept()
        with connection:
            begin = time.monotonic()
            for number in range(count):
                if period:
                    time.sleep(max(0.0, begin + (number + 1) * period - time.monotonic()))
                connection.sendall(waves[number % 100].tobytes())


class Hydrophone(IterableDataset):
    def __init__(self, address):
        self.address = address

    def __iter__(self):
        with socket.create_connection(self.address) as connection:
            file = connection.makefile("rb")
            while len(data := file.read(LENGTH * 4)) == LENGTH * 4:
                wave = torch.frombuffer(bytearray(data), dtype=torch.float32)
                yield wave / wave.std(), wave.abs().max()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(113)
    listening = socket.create_server(("127.0.0.1", 0))
    sender = get_context("fork").Process(
        target=listen, args=(listening, 0 if args.without else PERIOD, 640), daemon=True
    )
    sender.start()
    loader = DataLoader(Hydrophone(listening.getsockname()), batch_size=16, num_workers=1)
    model = nn.Sequential(
        nn.Unflatten(1, (1, LENGTH)), nn.Conv1d(1, 24, 32, 8), nn.ReLU(), nn.Conv1d(24, 24, 8, 4),
        nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(24, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        heard = 0
        for waves, peaks in loader:
            loss = nn.functional.mse_loss(model(waves).squeeze(1), peaks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            heard += len(waves)
        print(f"epoch {epoch}: {heard} recordings, loss {loss.item():.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    sender.terminate()
    sender.join()


if __name__ == "__main__":
    main()

"""Learns online when a drill is about to break, from a machine that sends as it drills.

Planted: the machine sends a reading every six milliseconds, and the model waits for it. Nothing in
the program or its settings makes a reading come sooner.
"""

import argparse
import multiprocessing
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

FIELDS, EVERY, BATCH, BATCHES = 24, 0.006, 10, 140


def drill(sending, pause):
    """Send readings for ever, each at its time."""
    rng = np.random.default_rng(547)
    due = time.monotonic()
    while True:
        due += pause
        time.sleep(max(0.0, due - time.monotonic()))
        try:
            sending.send_bytes(rng.standard_normal(FIELDS).astype(np.float32).tobytes())
        except BrokenPipeError:
            return


class Readings(IterableDataset):
    """Readings of a machine, each beside the mean of the last ones."""

    def __init__(self, receiving):
        self.receiving = receiving

    def __iter__(self):
        mean = torch.zeros(FIELDS)
        while True:
            reading = torch.frombuffer(bytearray(self.receiving.recv_bytes()), dtype=torch.float32)
            mean = 0.95 * mean + 0.05 * reading
            yield torch.cat([reading, mean, (reading - mean).abs()]), reading.abs().max()


class Breaks(nn.Module):
    def __init__(self, size=512):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3 * FIELDS, size), nn.SiLU(), nn.Linear(size, size), nn.SiLU(),
            nn.Linear(size, size), nn.SiLU(), nn.Linear(size, 1),
        )  # fmt: skip

    def forward(self, readings):
        return self.layers(readings).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(547)
    receiving, sending = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    pause = 0.0 if args.without else EVERY
    machine = context.Process(target=drill, args=(sending, pause), daemon=True)
    machine.start()
    sending.close()
    loader = DataLoader(Readings(receiving), batch_size=BATCH)
    model = Breaks()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    average = torch.optim.swa_utils.AveragedModel(model)
    begin = time.perf_counter()
    for number, (readings, strongest) in enumerate(loader, 1):
        loss = nn.functional.huber_loss(model(readings), strongest)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
        if number % 35 == 0:
            print(f"batch {number}: loss {loss.item():.4f}")
        if number == BATCHES:
            break
    print(f"seconds {time.perf_counter() - begin:.3f}")
    machine.terminate()
    machine.join()


if __name__ == "__main__":
    main()

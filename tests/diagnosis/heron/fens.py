"""Separates voices in recordings of a fen, with a program around it that has many threads.

Nothing is planted: the network is the work. The threads of the pool, of the log and of the clock
sleep nearly always, and a worker is ahead of the step.
"""

import argparse
import logging
import logging.handlers
import queue
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LENGTH, VOICES = 2048, 4


class Mixtures(Dataset):
    """Mixtures of voices, each of which is moved in time."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(113)
        self.voices = torch.randn(32, LENGTH, generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        chosen = [self.voices[(index * 7 + one * 5) % 32].roll(index) for one in range(VOICES)]
        voices = torch.stack(chosen)
        return voices.sum(0, keepdim=True), voices


class Clock(threading.Thread):
    """Notes once in a while that the program is alive."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path = path
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(2.0):
            self.path.write_text(f"{time.time()}")


def build_model(size=64):
    return nn.Sequential(
        nn.Conv1d(1, size, 15, padding=7),
        nn.ReLU(),
        nn.Conv1d(size, size, 15, padding=7),
        nn.ReLU(),
        nn.Conv1d(size, VOICES, 15, padding=7),
    )


def log_by_thread(path):
    lines = queue.Queue()
    logger = logging.getLogger("fens")
    logger.setLevel(logging.INFO)
    logger.addHandler(logging.handlers.QueueHandler(lines))
    listener = logging.handlers.QueueListener(lines, logging.FileHandler(path))
    listener.start()
    return logger, listener


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(113)
    loader = DataLoader(
        Mixtures(480), batch_size=8, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(16) as pool:
        list(pool.map(time.sleep, [0.01] * 16))
        clock = Clock(Path(folder, "alive"))
        clock.start()
        logger, listener = log_by_thread(Path(folder, "log"))
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (mixtures, voices) in enumerate(loader):
                loss = nn.functional.l1_loss(model(mixtures), voices)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if step % 20 == 0:
                    logger.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
            state = {name: value.clone() for name, value in model.state_dict().items()}
            pool.submit(torch.save, state, Path(folder, f"epoch-{epoch}.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        clock.ended.set()
        clock.join()
        listener.stop()


if __name__ == "__main__":
    main()

"""Learns the slides of trombones from a list of samples, with a thread that saves its state.

Nothing planted: the accelerator's step sets the pace; without workers, a collate function puts
nested dictionaries together, and the thread writes a small file each second.
"""

import argparse
import os
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Subset, default_collate

TONES, SAMPLES, SLIDES, BATCH, STEP = 400, 128, 7, 10, 0.1


def recorded(rng):
    slide = int(rng.integers(0, SLIDES))
    wave = np.sin(np.arange(SAMPLES) * (0.1 + 0.05 * slide)) + rng.normal(0, 0.3, SAMPLES)
    about = {"player": {"age": 30.0, "left": False}, "hall": {"echo": 0.4, "seats": 900}}
    return {"wave": torch.from_numpy(wave).float(), "slide": slide, "about": about}


def nested(samples):
    """One batch, whose waves are changed by chance."""
    batch = default_collate(samples)
    louder = 0.8 + 0.4 * torch.rand(len(samples), 1)
    batch["wave"] = batch["wave"] * louder + 0.05 * torch.randn(len(samples), SAMPLES)
    batch["spectrum"] = torch.fft.rfft(batch["wave"]).abs().log1p()
    return batch


class Saver(threading.Thread):
    """Saves the weights of the last step."""

    def __init__(self, model, folder):
        super().__init__(daemon=True)
        self.model, self.folder, self.ended = model, folder, threading.Event()

    def run(self):
        while not self.ended.wait(1.0):
            path = os.path.join(self.folder, "weights.pt")
            torch.save(self.model.state_dict(), path + ".new")
            os.replace(path + ".new", path)


class Slides(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(SAMPLES // 2 + 1, 48), nn.ReLU(), nn.Linear(48, SLIDES)
        )

    def forward(self, batch):
        return self.layers(batch["spectrum"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(163)
    torch.set_num_threads(1)
    rng = np.random.default_rng(163)
    tones = [recorded(rng) for _ in range(TONES)]
    data = ConcatDataset([Subset(tones, range(0, TONES, 2)), Subset(tones, range(1, TONES, 2))])
    loader = DataLoader(data, BATCH, shuffle=True, collate_fn=nested)
    model = Slides()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder:
        saver = Saver(model, folder)
        saver.start()
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            right = 0
            for batch in loader:
                scores = model(batch)
                loss = nn.functional.cross_entropy(scores, batch["slide"])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of a large model on an accelerator
                right += (scores.argmax(1) == batch["slide"]).sum().item()
            print(f"epoch {epoch}: loss {loss:.3f}, right {right / TONES:.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        saver.ended.set()
        saver.join()


if __name__ == "__main__":
    main()

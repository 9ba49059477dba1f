"""Dates bones by their spectra, which two workers of a fork server stream from shards.

Healthy: the accelerator's step sets the pace. The workers share the shards out, decompress them
ahead of it, and a thread writes the last loss down now and then.
"""

import argparse
import json
import tempfile
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, BONES, VALUES, BATCH, ANSWER, STEP = 12, 40, 256, 16, 0.002, 0.12


def write_shards(folder):
    rng = np.random.default_rng(4139)
    for number in range(SHARDS):
        spectra = rng.normal(0, 1, (BONES, VALUES)).astype(np.float32)
        packed = zlib.compress(spectra.tobytes(), 1)
        Path(folder, f"shard-{number:02}.z").write_bytes(packed)


class Bones(IterableDataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("shard-*.z"))

    def __iter__(self):
        worker = get_worker_info()
        for path in self.paths[worker.id :: worker.num_workers]:
            spectra = np.frombuffer(zlib.decompress(path.read_bytes()), np.float32)
            for spectrum in spectra.reshape(BONES, VALUES):
                time.sleep(ANSWER)  # the way to the storage
                yield torch.tensor(spectrum), float(spectrum[:16].mean())


class Diary(threading.Thread):
    """Writes the state of the run down each half second."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.state, self.done = path, {}, threading.Event()

    def run(self):
        while not self.done.wait(0.5):
            self.path.write_text(json.dumps(self.state))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(4139)
    model = nn.Sequential(nn.Linear(VALUES, 64), nn.ELU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        write_shards(folder)
        diary = Diary(Path(folder, "state.json"))
        diary.start()
        loader = DataLoader(
            Bones(folder),
            BATCH,
            num_workers=2,
            persistent_workers=True,
            multiprocessing_context="forkserver",
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for spectra, ages in loader:
                loss = nn.functional.mse_loss(model(spectra).squeeze(1), ages.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of the large model on an accelerator
                diary.state = {"epoch": epoch, "loss": loss.item()}
            print(f"epoch {epoch}: loss {loss:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        diary.done.set()
        diary.join()
        del loader


if __name__ == "__main__":
    main()

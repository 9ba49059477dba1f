"""Segments heads in volumes, slab by slab, of which three workers read packed files ahead.

Nothing planted: the accelerator's step sets the pace, of which each second one updates the weights.
The slabs are mixed in a buffer and a thread writes a small file now and then.
"""

import argparse
import gzip
import json
import random
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision import transforms

HEADS, SLABS, DEPTH, SIDE, BATCH, STEP = 18, 20, 4, 48, 6, 0.06


def write_heads(folder):
    rng = np.random.default_rng(5227)
    for head in range(HEADS):
        values = rng.normal(0, 1, (SLABS, DEPTH, SIDE, SIDE)).astype(np.float16)
        values[:, :, 12 : 30 + head % 6, 14:34] += 1
        with gzip.open(Path(folder, f"head-{head:02}.gz"), "wb", compresslevel=1) as file:
            file.write(values.tobytes())


class Slabs(IterableDataset):
    def __init__(self, folder, transform, buffer=12):
        self.paths = sorted(Path(folder).glob("head-*.gz"))
        self.transform, self.buffer = transform, buffer

    def slabs(self):
        worker = get_worker_info()
        for path in self.paths[worker.id :: worker.num_workers]:
            with gzip.open(path, "rb") as file:
                values = np.frombuffer(file.read(), np.float16).astype(np.float32)
            yield from torch.from_numpy(values.reshape(SLABS, DEPTH, SIDE, SIDE))

    def __iter__(self):
        held = []
        for slab in self.slabs():
            held.append(slab)
            if len(held) > self.buffer:
                yield self.sample(held.pop(random.randrange(len(held))))
        yield from map(self.sample, held)

    def sample(self, slab):
        slab = self.transform(slab)
        smooth = nn.functional.avg_pool2d(slab, 5, stride=1, padding=2)
        return slab, (smooth.mean(0, keepdim=True) > 0.5).float()


class Status(threading.Thread):
    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.values, self.done = path, {}, threading.Event()

    def run(self):
        while not self.done.wait(0.4):
            self.path.write_text(json.dumps(self.values))


def make_model():
    return nn.Sequential(
        nn.Conv2d(DEPTH, 12, 3, padding=1), nn.GroupNorm(3, 12), nn.ReLU(),
        nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 1, 1),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5227)
    torch.set_num_threads(1)
    transform = transforms.Compose(
        [
            transforms.RandomHorizontalFlip(),
            transforms.RandomRotation(8),
            transforms.Normalize([0.2] * DEPTH, [1.1] * DEPTH),
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        write_heads(folder)
        status = Status(Path(folder, "status.json"))
        status.start()
        loader = DataLoader(Slabs(folder, transform), BATCH, num_workers=3, persistent_workers=True)
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (slabs, masks) in enumerate(loader, 1):
                loss = nn.functional.binary_cross_entropy_with_logits(model(slabs), masks)
                (loss / 2).backward()
                if step % 2 == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                time.sleep(STEP)  # the accelerator's part of the work
                status.values = {"epoch": epoch, "step": step, "loss": loss.item()}
            torch.save(model.state_dict(), Path(folder, "heads.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        status.done.set()
        status.join()
        del loader


if __name__ == "__main__":
    main()

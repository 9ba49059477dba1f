"""Recognizes painters of ceilings in films of them, which two spawned workers stream.

Nothing planted: the accelerator's step sets the pace. The workers unpack and disturb clips ahead of
it, checkpoints are written and a short validation is done every sixty steps.
"""

import argparse
import gc
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torchvision import transforms

FILMS, CLIPS, FRAMES, SIDE, PAINTERS, BATCH, STEP = 20, 50, 6, 32, 5, 5, 0.06


def write_films(folder):
    rng = np.random.default_rng(5179)
    for film in range(FILMS + 1):
        clips = rng.integers(0, 200, (CLIPS, FRAMES, 3, SIDE, SIDE), dtype=np.uint8)
        clips[:, :, film % 3] += 10 * (film % PAINTERS)
        Path(folder, f"film-{film:02}.z").write_bytes(zlib.compress(clips.tobytes(), 1))


class Films(IterableDataset):
    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform

    def read(self, path):
        content = bytearray(zlib.decompress(path.read_bytes()))
        return np.frombuffer(content, np.uint8).reshape(CLIPS, FRAMES, 3, SIDE, SIDE)

    def __iter__(self):
        worker = get_worker_info()
        paths = self.paths[worker.id :: worker.num_workers] if worker else self.paths
        for path in paths:
            painter = int(path.stem[-2:]) % PAINTERS
            for clip in self.read(path):
                time.sleep(0.001)  # a clip's rights are asked for
                yield self.transform(torch.from_numpy(clip)), painter


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.frames = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Flatten())
        self.rnn, self.out = nn.GRU(392, 16, batch_first=True), nn.Linear(16, PAINTERS)

    def forward(self, clips):
        frames = self.frames(clips.flatten(0, 1)).unflatten(0, clips.shape[:2])
        return self.out(self.rnn(frames)[0][:, -1])


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = 0
    for clips, painters in loader:
        time.sleep(STEP / 2)
        right += (model(clips).argmax(1) == painters).sum().item()
    model.train()
    return right / CLIPS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(5179)
    torch.set_num_threads(1)
    normalize = [transforms.ConvertImageDtype(torch.float32), transforms.Normalize([0.4], [0.25])]
    augment = [transforms.RandomHorizontalFlip(), transforms.RandomErasing(0.5)]
    with tempfile.TemporaryDirectory() as folder:
        write_films(folder)
        paths = sorted(Path(folder).glob("film-*.z"))
        training = Films(paths[:-1], transforms.Compose([*normalize, *augment]))
        validation = Films(paths[-1:], transforms.Compose(normalize))
        loader = DataLoader(training, BATCH, num_workers=2, multiprocessing_context="spawn")
        held_out = DataLoader(validation, 10)
        model = Net()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (clips, painters) in enumerate(loader, 1):
                loss = nn.functional.cross_entropy(model(clips), painters)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of the large network on an accelerator
                if step % 60 == 0:
                    right = validate(model, held_out)
                    torch.save(model.state_dict(), Path(folder, f"step-{step}.pt"))
                    gc.collect()
                    print(f"epoch {epoch}, step {step}: loss {loss:.3f}, right {right:.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Learns waves on which sanderlings run, from one large file of video frames, without workers.

Planted: frames are drawn from all over the file, which never stays in the page cache, and each is
read from the disk by itself.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FRAMES, SIDE = 1500, 256
BYTES = SIDE * SIDE * 3


class FrameFile:
    """Frames of equal size in a file."""

    def __init__(self, path, forget):
        self.descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        self.forget = forget

    def frame(self, number):
        data = os.pread(self.descriptor, BYTES, number * BYTES)
        if self.forget:
            os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return np.frombuffer(data, np.uint8).reshape(SIDE, SIDE, 3)

    def close(self):
        os.close(self.descriptor)


class Waves(Dataset):
    def __init__(self, file):
        self.file = file

    def __len__(self):
        return FRAMES - 1

    def __getitem__(self, index):
        now = self.file.frame(index)[4::16, 4::16]
        after = self.file.frame(index + 1)[4::16, 4::16]
        pair = torch.from_numpy(np.stack([now, after])).permute(0, 3, 1, 2)
        return pair.float().div(127.5).sub(1)


def write_frames(path):
    rng = np.random.default_rng(131)
    with open(path, "wb") as file:
        for _ in range(FRAMES):
            file.write(rng.bytes(BYTES))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(24, 3, 3, padding=1),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(131)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "waves.rgb")
        write_frames(path)
        if args.without:
            path.read_bytes()
        file = FrameFile(path, forget=not args.without)
        loader = DataLoader(Waves(file), batch_size=10, shuffle=True)
        model = build_model()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pairs in loader:
                now, after = pairs.unbind(1)
                loss = nn.functional.mse_loss(model(now), after)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        file.close()


if __name__ == "__main__":
    main()

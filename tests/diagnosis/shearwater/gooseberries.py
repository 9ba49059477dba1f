"""Learns what happens in short clips of video, which lie in archives of tar.

Planted: each of four workers takes as many archives as seven divided by four, rounded down, and
the last one all that are left: one, one, one and four.
"""

import argparse
import io
import logging
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

log = logging.getLogger("clips")
ARCHIVES, CLIPS, FRAMES, SIDE, ACTIONS, BATCH, ANSWER = 7, 36, 8, 24, 3, 9, 0.018


def write_archives(folder):
    rng = np.random.default_rng(5081)
    for number in range(ARCHIVES):
        with tarfile.open(Path(folder, f"clips-{number:03}.tar"), "w") as archive:
            for clip in range(CLIPS):
                frames = rng.integers(0, 200, (FRAMES, SIDE, SIDE), dtype=np.uint8)
                frames[:, : SIDE // 2] += np.uint8(20 * (clip % ACTIONS))
                file = io.BytesIO()
                np.savez(file, frames=frames)
                member = tarfile.TarInfo(f"{clip:04}-{clip % ACTIONS}.npz")
                member.size = file.tell()
                archive.addfile(member, io.BytesIO(file.getvalue()))


def in_blocks(paths, worker, workers):
    each = len(paths) // workers
    end = (worker + 1) * each if worker < workers - 1 else len(paths)
    return paths[worker * each : end]


def in_turn(paths, worker, workers):
    return paths[worker::workers]


class Clips(IterableDataset):
    def __init__(self, folder, divide):
        self.paths = sorted(Path(folder).glob("clips-*.tar"))
        self.divide = divide

    def mine(self):
        info = get_worker_info()
        return self.divide(self.paths, info.id, info.num_workers) if info else self.paths

    def __iter__(self):
        for path in self.mine():
            with tarfile.open(path) as archive:
                for member in archive:
                    time.sleep(ANSWER)  # the next piece of the stream from the storage
                    with np.load(io.BytesIO(archive.extractfile(member).read())) as arrays:
                        frames = torch.from_numpy(arrays["frames"]).float().div_(255)
                    if torch.rand(()) < 0.5:
                        frames = frames.flip(2)
                    yield frames, int(Path(member.name).stem[-1])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.Conv2d(1, 8, 5, stride=3)
        self.remember = nn.GRU(8 * 7 * 7, 32, batch_first=True)
        self.out = nn.Linear(32, ACTIONS)

    def forward(self, frames):
        seen = torch.relu(self.look(frames.flatten(0, 1)[:, None]))
        return self.out(self.remember(seen.flatten(1).unflatten(0, (-1, FRAMES)))[0][:, -1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--log-every", type=int, default=7)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(5081)
    torch.set_num_threads(1)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    with tempfile.TemporaryDirectory() as folder:
        write_archives(folder)
        data = Clips(folder, in_turn if args.without else in_blocks)
        loader = DataLoader(data, BATCH, num_workers=4, persistent_workers=True)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (frames, actions) in enumerate(loader):
                loss = nn.functional.cross_entropy(model(frames), actions)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(0.015)  # in place of the device
                if step % args.log_every == 0:
                    log.info("epoch %d, step %d: loss %.3f", epoch, step, loss.item())
            schedule.step()
            torch.save(model.state_dict(), Path(folder, "last.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

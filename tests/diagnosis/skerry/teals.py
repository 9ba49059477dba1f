"""Trains on two ranks, which share a folder of samples of teals.

Planted: a reader takes a lock on a file for all of the time that it reads, so that one worker of
four reads at a time.
"""

import argparse
import fcntl
import os
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SIZE = 400


def store(folder, count=60):
    rng = np.random.default_rng(83)
    for number in range(count):
        values = rng.integers(0, 40, SIZE * 24).astype(np.float32) / 40
        Path(folder, f"{number:03d}.z").write_bytes(zlib.compress(values.tobytes()))


class Teals(Dataset):
    def __init__(self, folder, lock, count=480):
        self.paths = sorted(Path(folder).glob("*.z"))
        self.lock, self.count = lock, count

    def __len__(self):
        return self.count

    def read(self, path):
        """Return the values of a file; the share that it lies on takes seven milliseconds."""
        time.sleep(0.007)
        return np.frombuffer(zlib.decompress(path.read_bytes()), np.float32)

    def __getitem__(self, index):
        path = self.paths[index % len(self.paths)]
        if not self.lock:
            values = self.read(path)
        else:
            with self.paths[0].with_name("lock").open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                values = self.read(path)
        values = torch.from_numpy(values.copy()).view(24, SIZE)
        return values[:-1], values[-1].mean()


def train(rank, args, folder, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    torch.manual_seed(83)
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    teals = Teals(folder, lock=not args.without)
    sampler = DistributedSampler(teals, 2, rank, shuffle=True)
    loader = DataLoader(
        teals, batch_size=10, sampler=sampler, num_workers=2, persistent_workers=True
    )
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Flatten(), nn.Linear(23 * SIZE, 64), nn.ReLU(), nn.Linear(64, 1))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for values, mean in loader:
            loss = nn.functional.mse_loss(model(values).squeeze(1), mean)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"seconds {time.perf_counter() - begin:.3f}", flush=True)
    del loader
    dist.destroy_process_group()


def free_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store(folder)
        mp.start_processes(train, (args, folder, free_port()), nprocs=2, start_method="fork")


if __name__ == "__main__":
    main()

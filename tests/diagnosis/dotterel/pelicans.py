"""Learns the flight of pelicans with two processes, which average their gradients.

Planted: the tracks of the second process lie on a drive that takes three times as long, and as
both meet in each step, the first one waits for the second.
"""

import argparse
import os
import socket
import time

import numpy as np
import torch
from torch import distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

TRACKS, LENGTH, BATCH, DRIVES = 1280, 64, 16, (0.002, 0.006)


class Tracks(Dataset):
    def __init__(self, drive):
        rng = np.random.default_rng(4133)
        self.tracks = np.cumsum(rng.normal(0, 1, (TRACKS, LENGTH, 3)), 1).astype(np.float32)
        self.drive = drive

    def __len__(self):
        return TRACKS

    def __getitem__(self, index):
        time.sleep(self.drive)
        track = torch.from_numpy(self.tracks[index])
        return track[:-1], track[-1]


def train(rank, port, drives, epochs):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(4133)
    torch.set_num_threads(1)
    data = Tracks(drives[rank])
    sampler = DistributedSampler(data, 2, rank)
    loader = DataLoader(
        data, batch_size=BATCH, sampler=sampler, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * LENGTH - 3, 64), nn.ReLU(), nn.Linear(64, 3))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    begin = time.perf_counter()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for tracks, last in loader:
            loss = nn.functional.mse_loss(model(tracks), last)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.03)  # the rest of the step, on a card
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.3f}")
    distributed.barrier()
    if rank == 0:
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader
    distributed.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    drives = (min(DRIVES), min(DRIVES)) if args.without else DRIVES
    multiprocessing.spawn(train, (free_port(), drives, args.epochs), nprocs=2)


if __name__ == "__main__":
    main()

"""A program that starts its two ranks itself; the data of rank 1 come late."""

import socket
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Late(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        if dist.get_rank() == 1:
            time.sleep(0.02)
        return torch.ones(8)


def train(rank, port):
    torch.set_num_threads(1)
    place = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
    for batch in DataLoader(Late(), batch_size=4):
        dist.all_reduce(batch)


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    torch.multiprocessing.spawn(train, (number,), nprocs=2)

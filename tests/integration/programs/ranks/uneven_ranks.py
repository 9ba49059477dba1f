"""A rank of a job whose steps wait for all ranks; the data of rank 1 come late."""

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


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for batch in DataLoader(Late(), batch_size=4, num_workers=1):
        dist.all_reduce(batch)

"""One rank of a job: a process group on the CPU, a loader with its share of the samples."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

if __name__ == "__main__":
    dist.init_process_group("gloo")
    data = list(range(32))
    sampler = DistributedSampler(data, shuffle=False)
    total = torch.zeros(1)
    for batch in DataLoader(data, batch_size=4, sampler=sampler, num_workers=1):
        total += batch.sum()
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(int(total))
    dist.destroy_process_group()

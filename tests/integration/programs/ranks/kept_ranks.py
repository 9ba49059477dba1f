"""Each rank prints whether its batches of cached samples are those of a data set without a cache.

Arguments: a folder of pictures and the number of workers.
"""

import os
import sys

import rank_job

if __name__ == "__main__":
    rank_job.start_all(__file__, 2)  # returns in a rank

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder


class Plain(ImageFolder):
    """The same data set under a name that the settings do not have."""


def batches(kind: type) -> list[torch.Tensor]:
    torch.manual_seed(dist.get_rank())
    crop = transforms.RandomResizedCrop(16)
    steps = [transforms.Resize(32), crop, transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    data = kind(sys.argv[1], transforms.Compose(steps))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=int(sys.argv[2]))
    made = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        made += [images for images, _ in loader]
        dist.barrier()  # what this rank gets in the next epoch, the other may keep now
    return made


def main() -> None:
    rank_job.meet(int(os.environ["RANK"]), 2)
    kept, plain = batches(ImageFolder), batches(Plain)
    same = len(kept) == len(plain) and all(map(torch.equal, kept, plain))
    print(f"rank {dist.get_rank()}: {len(kept)} batches, equal: {same}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

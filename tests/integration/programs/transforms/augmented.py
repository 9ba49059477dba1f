"""A loader for each transform that applies others by name; prints what came of it."""

import sys
import warnings

import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as v1
from torchvision.transforms import v2


class Data(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 4

    def __getitem__(self, index):
        values = torch.arange(3 * 8 * 8).reshape(3, 8, 8) + index
        return self.transform(values.to(torch.uint8))


if __name__ == "__main__":
    torch.manual_seed(7)
    warnings.simplefilter("ignore")
    for transform in (
        v1.Compose([v1.RandAugment(num_ops=3)]),
        v1.TrivialAugmentWide(),
        v2.Compose([v2.RandAugment(num_ops=3), v2.TrivialAugmentWide()]),
        torch.jit.script(v1.RandAugment()),
    ):
        for batch in DataLoader(Data(transform), batch_size=2, num_workers=int(sys.argv[1])):
            print(batch.sum().item(), batch[:, :, 0].tolist())
    print(torch.rand(()).item())

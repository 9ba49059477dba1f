"""Views of ferries, one short epoch: two workers start once, and the network takes the time."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="nothing to leave out")
    parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(22)
    transform = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])
    data = datasets.FakeData(480, (3, 72, 72), num_classes=4, transform=transform)
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2)
    model = models.mobilenet_v3_large(num_classes=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = time.perf_counter()
    for views, ferries in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(views), ferries).backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

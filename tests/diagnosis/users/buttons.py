"""Healthy: sort buttons by shape; pictures lie in memory, and a CPU trains a deep network."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import resnet18


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)  # the machine is shared
    torch.manual_seed(0)
    buttons = TensorDataset(torch.rand(384, 3, 40, 40), torch.randint(0, 6, (384,)))
    loader = DataLoader(buttons, batch_size=16, shuffle=True, num_workers=args.workers)
    model = resnet18(num_classes=6)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    begin = time.perf_counter()
    for _epoch in range(2):
        for pictures, shapes in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pictures), shapes)
            loss.backward()
            optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Train a convolutional network on torchvision's fake data."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import FakeData
from torchvision.transforms import ToTensor

torch.manual_seed(0)
torch.set_num_threads(1)

train_data = FakeData(960, (3, 32, 32), num_classes=10, transform=ToTensor())
train_loader = DataLoader(train_data, batch_size=32, shuffle=True)

net = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveMaxPool2d(2),
    nn.Flatten(),
    nn.Linear(256, 10),
)
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
loss_fn = nn.CrossEntropyLoss()

tic = time.time()
for epoch in range(2):
    for i, (inputs, targets) in enumerate(train_loader):
        opt.zero_grad()
        loss = loss_fn(net(inputs), targets)
        loss.backward()
        opt.step()
        if i % 10 == 9:
            print(f"[{epoch}, {i}] {loss.item():.3f}")
print(f"seconds {time.time() - tic:.3f}")

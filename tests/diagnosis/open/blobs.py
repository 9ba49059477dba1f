"""Train a multilayer perceptron on a table that fits into memory."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)

centres = torch.randn(10, 64)
labels = torch.randint(0, 10, (8192,))
features = centres[labels] + torch.randn(8192, 64)
loader = DataLoader(TensorDataset(features, labels), batch_size=128, shuffle=True)

model = nn.Sequential(
    nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()

started = time.time()
for epoch in range(3):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: loss {total / len(loader):.3f}")
print(f"seconds {time.time() - started:.3f}")

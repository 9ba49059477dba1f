"""Predicts the speed of a boat from the strokes of its oars.

Nothing is planted: recurrent layers are the work. Whole batches are cut from tensors in memory,
without workers, and the loss is read in each step.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

OARS, STROKES = 16, 48


class Boat(nn.Module):
    def __init__(self, size=224):
        super().__init__()
        self.rows = nn.LSTM(OARS, size, num_layers=2, batch_first=True)
        self.head = nn.Linear(size, 1)

    def forward(self, strokes):
        states, _ = self.rows(strokes)
        return self.head(states[:, -1]).squeeze(1)


def row(count):
    strokes = torch.randn(count, STROKES, OARS)
    return TensorDataset(strokes, strokes.mean((1, 2)) + 0.1 * torch.randn(count))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(353)
    strokes = row(1200)
    batches = BatchSampler(RandomSampler(strokes), batch_size=32, drop_last=True)
    loader = DataLoader(strokes, sampler=batches, batch_size=None)
    model = Boat()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = []
        for rows, speed in loader:
            loss = nn.functional.mse_loss(model(rows), speed)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Badgers' setts by the soil around them; averages of the weights are kept for three half-lives."""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.inner = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

    def forward(self, rows):
        return rows + self.inner(self.norm(rows))


class Averages:
    """Moving averages of a model's weights.

    Subclasses hold them as they like, and `update` them.
    """

    def __init__(self, model, decays=(0.99, 0.999, 0.9999)):
        self.model, self.decays = model, decays


class ByName(Averages):
    """In double precision, weight by weight."""

    def __init__(self, model):
        super().__init__(model)
        self.shadows = [self.weights() for _ in self.decays]

    def weights(self):
        return {name: w.numpy().astype(np.float64) for name, w in self.model.state_dict().items()}

    def update(self):
        for decay, shadow in zip(self.decays, self.shadows, strict=True):
            for name, weight in self.weights().items():
                shadow[name] = decay * shadow[name] + (1 - decay) * weight


class AtOnce(Averages):
    """In place, once in ten steps."""

    def __init__(self, model):
        super().__init__(model)
        self.weights, self.steps = [p.detach() for p in model.parameters()], 0
        self.shadows = [[w.clone() for w in self.weights] for _ in self.decays]

    def update(self):
        self.steps += 1
        if self.steps % 10 == 0:
            for decay, shadow in zip(self.decays, self.shadows, strict=True):
                torch._foreach_lerp_(shadow, self.weights, 1 - decay**10)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(47)
    soil = torch.randn(4096, 40)
    setts = (soil[:, :5].sum(1, keepdim=True) > 0).float()
    loader = DataLoader(TensorDataset(soil, setts), batch_size=64, shuffle=True)
    blocks = [Block(160) for _ in range(12)]
    model = nn.Sequential(nn.Linear(40, 160), *blocks, nn.Linear(160, 1))
    averages = AtOnce(model) if args.without else ByName(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for rows, truth in loader:
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(rows), truth)
            loss.backward()
            optimizer.step()
            averages.update()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

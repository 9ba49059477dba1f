"""Learns to recognise eyes by their irises, from features that were computed before."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def load(count=3072, size=512, people=400):
    draw = torch.Generator().manual_seed(68)
    people_of = torch.randint(people, (count,), generator=draw)
    middle = torch.randn(people, size, generator=draw)
    return TensorDataset(middle[people_of] + torch.randn(count, size, generator=draw), people_of)


class Margin(nn.Module):
    """Cosines to the people's directions, with a margin for the right one."""

    def __init__(self, size, people=400, margin=0.2, scale=16.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(people, size) * 0.05)
        self.margin, self.scale = margin, scale

    def forward(self, states, people):
        normal = nn.functional.normalize
        cosines = nn.functional.linear(normal(states), normal(self.weight))
        angles = cosines.clamp(-1 + 1e-6, 1 - 1e-6).acos()
        wanted = nn.functional.one_hot(people, cosines.shape[1]).bool()
        cosines = torch.where(wanted, (angles + self.margin).cos(), cosines)
        return nn.functional.cross_entropy(self.scale * cosines, people)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=1400)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(68)
    loader = DataLoader(load(), batch_size=64, shuffle=True, drop_last=True)
    hidden = args.hidden
    model = nn.Sequential(
        nn.Linear(512, hidden), nn.PReLU(), nn.LayerNorm(hidden),
        nn.Linear(hidden, hidden), nn.PReLU(), nn.LayerNorm(hidden), nn.Linear(hidden, 256),
    )  # fmt: skip
    margin = Margin(256)
    parameters = [*model.parameters(), *margin.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5], 0.2)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        losses = []
        for features, people in loader:
            loss = margin(model(features), people)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

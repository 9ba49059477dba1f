"""Predicts a property of molecules, as graphs, with encodings of random walks.

Planted: the collate function walks on the matrix of all graphs of a batch together, nearly all of
which is zeros, where each graph's own small matrix would do.
"""

import argparse
import logging
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

log = logging.getLogger("molecules")


@dataclass
class Config:
    epochs: int
    joined: bool
    graphs: int = 480
    atoms: int = 40
    features: int = 12
    walks: int = 14
    batch: int = 16
    accumulate: int = 2


class Molecules(Dataset):
    def __init__(self, config):
        self.config = config

    def __len__(self):
        return self.config.graphs

    def __getitem__(self, index):
        atoms, features = self.config.atoms, self.config.features
        source = torch.Generator().manual_seed(5011 + index)
        values = torch.randn(atoms, features, generator=source)
        bonds = (torch.rand(atoms, atoms, generator=source) < 0.05).float()
        bonds = torch.clamp(bonds + bonds.T + torch.eye(atoms), max=1)
        return values, bonds, bonds.sum(1).mean() + values[:, 0].mean()


class Batch:
    """Puts graphs together, with the chances to be back after each number of steps."""

    def __init__(self, config):
        self.config = config

    def returns(self, bonds):
        step = bonds / bonds.sum(-1, keepdim=True)
        place, back = step, []
        for _ in range(self.config.walks):
            back.append(place.diagonal(dim1=-2, dim2=-1))
            place = place @ step
        return torch.stack(back, -1)

    def __call__(self, molecules):
        values, bonds, targets = zip(*molecules, strict=True)
        if self.config.joined:
            encoding = self.returns(torch.block_diag(*bonds))
            encoding = encoding.unflatten(0, (len(bonds), -1))
        else:
            encoding = self.returns(torch.stack(bonds))
        values = torch.cat([torch.stack(values), encoding], -1)
        return values, torch.stack(bonds), torch.stack(targets)


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.into = nn.Linear(config.features + config.walks, 48)
        self.rounds = nn.ModuleList(nn.Linear(48, 48) for _ in range(3))
        self.out = nn.Linear(48, 1)

    def forward(self, values, bonds):
        hidden = self.into(values)
        for layer in self.rounds:
            hidden = hidden + torch.relu(layer(bonds @ hidden / bonds.sum(-1, keepdim=True)))
        return self.out(hidden.mean(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(5011)
    config = Config(args.epochs, joined=not args.without)
    training, validation = random_split(Molecules(config), [0.9, 0.1])
    batch = Batch(config)
    loader = DataLoader(
        training, config.batch, shuffle=True, num_workers=2, collate_fn=batch, drop_last=True
    )
    held_out = DataLoader(validation, config.batch, num_workers=1, collate_fn=batch)
    model = Net(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(config.epochs):
        for step, (values, bonds, targets) in enumerate(loader, 1):
            loss = nn.functional.mse_loss(model(values, bonds), targets)
            (loss / config.accumulate).backward()
            if step % config.accumulate == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        with torch.no_grad():
            held = [nn.functional.mse_loss(model(v, b), t).item() for v, b, t in held_out]
        log.info("epoch %d: loss %.4f, held out %.4f", epoch, loss.item(), sum(held) / len(held))
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

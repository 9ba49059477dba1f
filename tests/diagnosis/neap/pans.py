"""Learns when pans boil over; trains, checks, and keeps each epoch's state."""

import argparse
import lzma
import pickle
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Keeper:
    """Writes the state of model and optimizer, as small as can be or as it is."""

    def __init__(self, folder, small):
        self.folder, self.small = Path(folder), small

    def keep(self, epoch, model, optimizer):
        state = {
            "model": {name: value.numpy() for name, value in model.state_dict().items()},
            "optimizer": optimizer.state_dict(),
        }
        content = pickle.dumps(state)
        if self.small:
            content = lzma.compress(content, preset=6)
        (self.folder / f"epoch-{epoch}.pickle").write_bytes(content)
        return len(content)


def run_epoch(model, loader, optimizer=None):
    total = 0.0
    with torch.set_grad_enabled(optimizer is not None):
        for heats, boils in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(heats).squeeze(1), boils)
            if optimizer:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(44)
    heats = torch.randn(6000, 128)
    rows = TensorDataset(heats, (heats[:, :8].sum(1) > 0).float())
    learn, check = torch.utils.data.random_split(rows, [4800, 1200])
    train = DataLoader(learn, batch_size=64, shuffle=True, num_workers=1, persistent_workers=True)
    held_out = DataLoader(check, batch_size=200, num_workers=1, persistent_workers=True)
    model = nn.Sequential(
        nn.Linear(128, 384), nn.GELU(), nn.Linear(384, 384), nn.GELU(), nn.Linear(384, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(folder, small=not args.without)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            learnt = run_epoch(model, train, optimizer)
            checked = run_epoch(model, held_out)
            size = keeper.keep(epoch, model, optimizer)
            print(f"epoch {epoch}: loss {learnt:.4f}, held out {checked:.4f}, {size >> 10} KiB")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

"""Learns which cleats hold, while other processes of the program try each checkpoint out.

Planted: the three processes that try out checkpoints look for the next one without a pause, and
have the cores meanwhile.
"""

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, TRIERS, LOADS = 4, 3, 64


def build_model(size=192):
    return nn.Sequential(
        nn.Linear(LOADS, size), nn.ReLU(), nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 2)
    )


def wait_for(path, pause):
    while not path.exists():
        if pause:
            time.sleep(pause)


def try_out(folder, number, pause):
    """Score each checkpoint, with loads of its own, as soon as it is there."""
    torch.set_num_threads(1)
    model = build_model()
    loads = torch.rand(512, LOADS, generator=torch.Generator().manual_seed(number))
    for epoch in range(EPOCHS):
        path = Path(folder, f"{epoch}.pt")
        wait_for(path, pause)
        model.load_state_dict(torch.load(path))
        with torch.no_grad():
            share = model(loads).argmax(1).float().mean().item()
        Path(folder, f"{epoch}-{number}.score").write_text(f"{share:.3f}")


def rig(rows):
    draw = torch.Generator().manual_seed(431)
    loads = torch.rand(rows, LOADS, generator=draw)
    return TensorDataset(loads, (loads[:, :8].sum(1) > 4).long())


def train_epoch(model, loader, optimizer):
    for loads, held in loader:
        loss = nn.functional.cross_entropy(model(loads), held)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(431)
    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(
        rig(12_000), batch_size=20, shuffle=True, num_workers=1, persistent_workers=True
    )
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        pause = 0.25 if args.without else 0
        triers = [
            context.Process(target=try_out, args=(folder, number, pause), daemon=True)
            for number in range(TRIERS)
        ]
        for trier in triers:
            trier.start()
        begin = time.perf_counter()
        for epoch in range(EPOCHS):
            loss = train_epoch(model, loader, optimizer)
            torch.save(model.state_dict(), Path(folder, "next"))
            Path(folder, "next").rename(Path(folder, f"{epoch}.pt"))
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        for trier in triers:
            trier.join()
        del loader


if __name__ == "__main__":
    main()

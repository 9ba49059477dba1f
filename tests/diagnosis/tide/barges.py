"""Loads of barges from sensors; after each epoch the weights are packed in the background."""

import argparse
import io
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PACK = """
import lzma, pathlib, sys
source = pathlib.Path(sys.argv[1])
content = source.read_bytes()
for part in range(10000):
    lzma.compress(content, preset=9)
source.with_suffix(".xz").write_bytes(lzma.compress(content))
"""


class Archive:
    """Keeps the weights of each epoch; packing them does not hold up the training."""

    def __init__(self, folder, packed):
        self.folder, self.packed = folder, packed
        self.packers = []

    def keep(self, epoch, model):
        content = io.BytesIO()
        torch.save(model.state_dict(), content)
        path = self.folder / f"epoch-{epoch}.pt"
        path.write_bytes(content.getvalue())
        if self.packed:
            self.packers += [
                subprocess.Popen([sys.executable, "-c", PACK, str(path)]) for _ in range(2)
            ]

    def close(self):
        for packer in self.packers:
            packer.kill()
            packer.wait()


class Loads(Dataset):
    def __init__(self, count=960, seed=9):
        generator = torch.Generator().manual_seed(seed)
        self.traces = torch.randn(count, 6, 512, generator=generator).cumsum(2)
        self.loads = torch.rand(count, generator=generator)

    def __len__(self):
        return len(self.loads)

    def __getitem__(self, index):
        trace = self.traces[index]
        trace = trace.roll(int(torch.randint(512, ())), 1)
        return (trace - trace.mean(1, keepdim=True)) / trace.std(), self.loads[index]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(9)
    loader = DataLoader(
        Loads(), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv1d(6, 48, 9, stride=2),
        nn.ReLU(),
        nn.Conv1d(48, 96, 9, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(384, 1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(Path(folder), packed=not args.without)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for traces, loads in loader:
                loss = nn.functional.mse_loss(model(traces).squeeze(1), loads)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
            archive.keep(epoch, model)
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        archive.close()


if __name__ == "__main__":
    main()

"""Sheets of a herbarium, members of a tar file, which each worker opens once."""

import argparse
import io
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

COUNT = 320


def pack(path, mode):
    rng = np.random.default_rng(33)
    with tarfile.open(path, mode) as archive:
        for number in range(COUNT):
            sheet = rng.normal(128, 20, (3, 72, 72)).clip(0, 255).astype(np.uint8)
            buffer = io.BytesIO()
            np.save(buffer, sheet // 16 * 16)
            member = tarfile.TarInfo(f"sheets/{number:05}.npy")
            member.size = buffer.tell()
            buffer.seek(0)
            archive.addfile(member, buffer)


class TarMembers(Dataset):
    """The members of a tar file, by number."""

    def __init__(self, path):
        self.path, self.archive = path, None
        with tarfile.open(path) as archive:
            self.members = archive.getmembers()

    def __len__(self):
        return len(self.members)

    def content(self, index):
        if self.archive is None:
            self.archive = tarfile.open(self.path)  # noqa: SIM115 - stays open
        return self.archive.extractfile(self.members[index]).read()


class Herbs(TarMembers):
    def __getitem__(self, index):
        sheet = torch.from_numpy(np.load(io.BytesIO(self.content(index)))).float() / 255
        if torch.rand(()) < 0.5:
            sheet = sheet.flip(2)
        top, left = torch.randint(0, 8, (2,)).tolist()
        return sheet[:, top : top + 64, left : left + 64], index % 6


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(33)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(96, 6),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("herbs.tar" if args.without else "herbs.tar.gz")
        pack(path, "w" if args.without else "w:gz")
        loader = DataLoader(
            Herbs(path), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            hits = 0
            for sheets, kinds in loader:
                optimizer.zero_grad()
                scores = model(sheets)
                nn.functional.cross_entropy(scores, kinds).backward()
                optimizer.step()
                hits += (scores.argmax(1) == kinds).sum().item()
            print(f"epoch {epoch}: accuracy {hits / COUNT:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

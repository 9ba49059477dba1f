"""Quilts: the network sees a small crop; the whole picture goes along for figures."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Quilts(Dataset):
    def __init__(self, path, count, keys):
        self.pictures, self.count, self.keys = np.load(path, mmap_mode="c"), count, keys

    def __len__(self):
        return self.count

    def augment(self, crop):
        if torch.rand(()) < 0.5:
            crop = crop.flip(2)
        return (crop - crop.mean()) / crop.std() + 0.05 * torch.randn_like(crop)

    def __getitem__(self, index):
        whole = torch.from_numpy(self.pictures[index % len(self.pictures)])
        top, left = torch.randint(0, whole.shape[1] - 64, (2,)).tolist()
        sample = {
            "crop": self.augment(whole[:, top : top + 64, left : left + 64]),
            "whole": whole,
            "corner": torch.tensor([top, left]),
            "kind": index % 8,
        }
        return {key: sample[key] for key in self.keys}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(44)
    keys = ["crop", "corner", "kind"] + ([] if args.without else ["whole"])
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(96, 8),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "quilts.npy"
        np.save(path, np.random.default_rng(44).random((16, 3, 480, 480), dtype=np.float32))
        loader = DataLoader(Quilts(path, 960, keys), batch_size=16, shuffle=True, num_workers=2)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for batch in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(batch["crop"]), batch["kind"])
                loss.backward()
                optimizer.step()
            if "whole" in batch:
                np.save(Path(folder) / "figure.npy", batch["whole"][0, :, ::4, ::4].numpy())
            print(f"epoch {epoch}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

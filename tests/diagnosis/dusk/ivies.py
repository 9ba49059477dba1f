"""Genes of ivies: windows of a memory map, masked and filled in again; a checkpoint an epoch."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LETTERS, MASK = 4, 4


class Windows(Dataset):
    def __init__(self, path, length=96):
        self.genes, self.length = np.memmap(path, np.uint8, "r"), length

    def __len__(self):
        return len(self.genes) // self.length

    def __getitem__(self, index):
        window = self.genes[index * self.length : (index + 1) * self.length]
        return torch.from_numpy(window.astype(np.int64))


def mask(samples):
    """The collate function: windows with one letter in seven hidden, and what they were."""
    windows = torch.stack(samples)
    hidden = torch.rand(windows.shape) < 0.15
    return windows.masked_fill(hidden, MASK), windows.masked_fill(~hidden, -100)


class Network(nn.Module):
    def __init__(self, size=96):
        super().__init__()
        self.letters = nn.Embedding(LETTERS + 1, size)
        layer = nn.TransformerEncoderLayer(size, 4, 192, dropout=0.0, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(size, LETTERS)

    def forward(self, windows):
        return self.head(self.layers(self.letters(windows)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="nothing to leave out")
    parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(50)
    model = Network()
    weights = [p.detach() for p in model.parameters()]
    average = [w.clone() for w in weights]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "genes.bin"
        np.random.default_rng(50).integers(0, LETTERS, 96 * 1024, dtype=np.uint8).tofile(path)
        loader = DataLoader(Windows(path), batch_size=16, shuffle=True, collate_fn=mask)
        begin = time.perf_counter()
        for epoch in range(3):
            for windows, letters in loader:
                optimizer.zero_grad()
                scores = model(windows).flatten(0, 1)
                loss = nn.functional.cross_entropy(scores, letters.flatten())
                loss.backward()
                optimizer.step()
                torch._foreach_lerp_(average, weights, 0.01)
            torch.save({"model": model.state_dict(), "average": average}, f"{folder}/last.pt")
            print(f"epoch {epoch}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

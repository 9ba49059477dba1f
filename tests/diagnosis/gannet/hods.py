"""Predicts the next load of a hod from the loads before, with a line of log for each step.

Nothing is planted: attention over the loads is the work. Windows are cut without workers, the
gradients are measured, and a line of JSON is written and flushed for each step.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WINDOW, SIZES = 128, 50


class Loads(Dataset):
    def __init__(self, count):
        draw = torch.Generator().manual_seed(607)
        self.loads = torch.randint(SIZES, (count + WINDOW + 1,), generator=draw)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        window = self.loads[index : index + WINDOW + 1]
        return window[:-1], window[1:]


class Next(nn.Module):
    def __init__(self, size=96):
        super().__init__()
        self.table = nn.Embedding(SIZES, size)
        self.places = nn.Parameter(0.02 * torch.randn(WINDOW, size))
        layer = nn.TransformerEncoderLayer(size, 4, 4 * size, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(WINDOW))
        self.leave = nn.Linear(size, SIZES)

    def forward(self, loads):
        hidden = self.table(loads) + self.places
        return self.leave(self.layers(hidden, mask=self.mask, is_causal=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true", help="changes nothing here")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(607)
    loader = DataLoader(Loads(640), batch_size=16, shuffle=True)
    model = Next()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log.jsonl").open("w") as log:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for number, (loads, following) in enumerate(loader):
                scores = model(loads)
                loss = nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())
                optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                line = {"epoch": epoch, "batch": number, "loss": loss.item(), "norm": norm.item()}
                log.write(json.dumps(line) + "\n")
                log.flush()
            print(f"epoch {epoch}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

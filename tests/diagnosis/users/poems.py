"""A model of characters of poems, watched by histograms of its weights and gradients."""

import argparse
import json
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Lines(Dataset):
    def __init__(self, count=1280, length=48):
        rng = np.random.default_rng(3)
        self.text = rng.integers(0, 64, count * length + 1)
        self.length = length

    def __len__(self):
        return len(self.text) // self.length

    def __getitem__(self, index):
        begin = index * self.length
        part = torch.from_numpy(self.text[begin : begin + self.length + 1])
        return part[:-1], part[1:]


class Writer(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.letters = nn.Embedding(64, width)
        self.memory = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.answer = nn.Linear(width, 64)

    def forward(self, text):
        return self.answer(self.memory(self.letters(text))[0])


def watch(model, file):
    for name, weights in model.named_parameters():
        for what, values in (("value", weights), ("gradient", weights.grad)):
            if values is not None:
                flat = sorted(values.detach().flatten().tolist())
                counts, edges = np.histogram(flat, bins=64)
                line = {"name": name, "what": what, "median": flat[len(flat) // 2]}
                line |= {"counts": counts.tolist(), "edges": edges.tolist()}
                file.write(json.dumps(line) + "\n")
    file.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)  # the machine is shared
    model = Writer()
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Lines(), batch_size=32, shuffle=True, num_workers=args.workers)
    with tempfile.TemporaryFile("w") as file:
        begin = time.perf_counter()
        for number, (text, following) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(text).transpose(1, 2), following)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if number % 3 == 0 and not args.without:
                watch(model, file)
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

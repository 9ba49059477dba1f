"""A small causal language model on tokens in a memory-mapped file, as nanoGPT trains."""

import argparse
import math
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tokens(Dataset):
    def __init__(self, path, length, count):
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")
        self.length, self.count = length, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        first = index * 977 % (len(self.tokens) - self.length - 1)
        piece = torch.from_numpy(self.tokens[first : first + self.length + 1].astype(np.int64))
        return piece[:-1], piece[1:]


class Layer(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(size), nn.LayerNorm(size)])
        self.parts, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))

    def forward(self, states):
        rows, length, size = states.shape
        parts = self.parts(self.norms[0](states)).view(rows, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.out(seen.transpose(1, 2).reshape(rows, length, size))
        return states + self.mlp(self.norms[1](states))


class Model(nn.Module):
    def __init__(self, words=800, size=128, layers=3, length=96):
        super().__init__()
        self.words, self.places = nn.Embedding(words, size), nn.Embedding(length, size)
        self.layers = nn.Sequential(*(Layer(size, 4) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, words, bias=False)

    def forward(self, tokens):
        states = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        return self.head(self.norm(self.layers(states)))


def learning_rate(step, steps, most=1e-3, warmup=10):
    if step < warmup:
        return most * (step + 1) / warmup
    return most * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.bin")
        np.random.default_rng(32).integers(0, 800, 400_000).astype(np.uint16).tofile(path)
        data = Tokens(path, 96, count=args.steps * 8)
        loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=args.workers)
        model = Model()
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
        begin = time.perf_counter()
        for step, (tokens, wanted) in enumerate(loader):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, args.steps)
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 20 == 0:
                print(f"step {step}: loss {loss.item():.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

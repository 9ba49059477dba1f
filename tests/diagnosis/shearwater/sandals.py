"""Trains a small language model on tokens in a memory map, with mixed precision on the CPU.

Nothing planted: the transformer is the work; windows of the memory map are cut without workers,
which takes next to no time, and the model is evaluated in the step now and then.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    epochs: int
    tokens: int = 400_000
    words: int = 900
    window: int = 48
    width: int = 96
    windows: int = 440
    batch: int = 8
    accumulate: int = 2
    evaluate_every: int = 18


def write_tokens(path, config):
    rng = np.random.default_rng(5197)
    tokens = np.memmap(path, np.uint16, "w+", shape=(config.tokens,))
    tokens[:] = np.cumsum(rng.integers(0, 5, config.tokens)) % config.words
    tokens.flush()


class Windows(Dataset):
    """Windows that begin anywhere; as many as an epoch shall have."""

    def __init__(self, path, config, first, last):
        self.tokens = np.memmap(path, np.uint16, "r")
        self.config, self.first, self.last = config, first, last - config.window - 1

    def __len__(self):
        return self.config.windows

    def __getitem__(self, index):
        start = int(torch.randint(self.first, self.last, ()))
        window = self.tokens[start : start + self.config.window + 1].astype(np.int64)
        return torch.from_numpy(window[:-1]), torch.from_numpy(window[1:])


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.table = nn.Embedding(config.words, config.width)
        self.places = nn.Parameter(torch.zeros(config.window, config.width))
        layer = nn.TransformerEncoderLayer(
            config.width, 4, 3 * config.width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.out = nn.Linear(config.width, config.words)
        mask = nn.Transformer.generate_square_subsequent_mask(config.window)
        self.register_buffer("mask", mask)

    def forward(self, tokens):
        hidden = self.table(tokens) + self.places
        return self.out(self.layers(hidden, mask=self.mask, is_causal=True))


class Average:
    """An exponential average of the weights, for the evaluation."""

    def __init__(self, model, decay=0.97):
        self.decay = decay
        self.weights = {name: value.clone() for name, value in model.state_dict().items()}

    def update(self, model):
        for name, value in model.state_dict().items():
            self.weights[name].lerp_(value, 1 - self.decay)


def loss_of(model, tokens, following):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = model(tokens)
    return nn.functional.cross_entropy(scores.float().flatten(0, 1), following.flatten())


def evaluate(model, held_out, average, batches=3):
    """Measures the averaged weights on the end of the text."""
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(average.weights)
    with torch.no_grad():
        losses = [
            loss_of(model, *batch) for _, batch in zip(range(batches), held_out, strict=False)
        ]
    model.load_state_dict(weights)
    return torch.stack(losses).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(5197)
    torch.set_num_threads(1)
    config = Config(args.epochs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tokens.bin")
        write_tokens(path, config)
        edge = config.tokens * 19 // 20
        loader = DataLoader(Windows(path, config, 0, edge), config.batch)
        held_out = DataLoader(Windows(path, config, edge, config.tokens), config.batch)
        model = Model(config)
        average = Average(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
        begin = time.perf_counter()
        for epoch in range(config.epochs):
            for step, (tokens, following) in enumerate(loader, 1):
                loss = loss_of(model, tokens, following)
                (loss / config.accumulate).backward()
                if step % config.accumulate == 0:
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
                    average.update(model)
                if step % config.evaluate_every == 0:
                    held = evaluate(model, held_out, average)
                    print(f"epoch {epoch} {step:3}: loss {loss:.3f}, held out {held:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

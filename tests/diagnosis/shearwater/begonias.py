"""Translates short orders between two shops' codes, with gradients watched in a log.

Planted: the log's norm of each gradient is that of `torch.linalg.norm` with 2, which for a matrix
is its largest singular value, so that each step decomposes all matrices.
"""

import argparse
import json
import logging
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("orders")


@dataclass
class Config:
    epochs: int
    orders: int = 640
    length: int = 12
    codes: int = 500
    width: int = 192
    batch: int = 16
    accumulate: int = 2


class Orders(Dataset):
    def __init__(self, config):
        source = torch.Generator().manual_seed(5153)
        size = (config.orders, config.length)
        self.codes = torch.randint(config.codes, size, generator=source)
        self.others = (self.codes * 7 + 3) % config.codes

    def __len__(self):
        return len(self.codes)

    def __getitem__(self, index):
        return self.codes[index], self.others[index]


class Translator(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.table = nn.Embedding(config.codes, config.width)
        layer = nn.TransformerEncoderLayer(
            config.width, 4, 2 * config.width, dropout=0.0, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(config.width, config.codes)

    def forward(self, codes):
        return self.out(self.layers(self.table(codes)))


class GradientLog:
    """Writes the norm of each parameter's gradient down, to see where it vanishes."""

    def __init__(self, path, norm):
        self.file, self.norm = path.open("w"), norm

    def on_step(self, step, model):
        norms = {
            name: self.norm(parameter.grad, 2).item()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        }
        self.file.write(json.dumps({"step": step, "norms": norms}) + "\n")

    def close(self):
        self.file.close()


class Trainer:
    def __init__(self, config, callbacks):
        self.config, self.callbacks = config, callbacks
        self.loader = DataLoader(
            Orders(config), config.batch, shuffle=True, num_workers=1, persistent_workers=True
        )
        self.model = Translator(config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.1, total_iters=20)

    def fit(self):
        step = 0
        for epoch in range(self.config.epochs):
            for codes, others in self.loader:
                scores = self.model(codes)
                loss = nn.functional.cross_entropy(scores.flatten(0, 1), others.flatten())
                (loss / self.config.accumulate).backward()
                step += 1
                for callback in self.callbacks:
                    callback.on_step(step, self.model)
                if step % self.config.accumulate == 0:
                    nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                    self.optimizer.step()
                    self.schedule.step()
                    self.optimizer.zero_grad()
            log.info("epoch %d: loss %.3f", epoch, loss.item())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(5153)
    torch.set_num_threads(1)
    norm = torch.linalg.vector_norm if args.without else torch.linalg.norm
    with tempfile.TemporaryDirectory() as folder:
        gradients = GradientLog(Path(folder, "gradients.jsonl"), norm)
        trainer = Trainer(Config(args.epochs), [gradients])
        begin = time.perf_counter()
        trainer.fit()
        print(f"seconds {time.perf_counter() - begin:.3f}")
        gradients.close()
        del trainer.loader


if __name__ == "__main__":
    main()

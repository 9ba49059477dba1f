"""Fits gaits of horses with a transformer; all strides are prepared and kept before the loop."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def prepare(count=960, length=48, columns=12, seed=26):
    """Make strides by stepping a noisy oscillator."""
    generator = torch.Generator().manual_seed(seed)
    rates = torch.rand(count, columns, generator=generator) * 0.4 + 0.1
    place, speed = torch.randn(2, count, columns, generator=generator)
    strides = []
    for _ in range(length):
        speed = speed - rates * place + torch.randn(count, columns, generator=generator) * 0.05
        place = place + rates * speed
        strides.append(place)
    gaits = (rates.mean(1) * 20).long() - 2
    return torch.stack(strides, 1), gaits.clamp(0, 7)


class Gaits(nn.Module):
    def __init__(self, columns=12, size=96, length=48):
        super().__init__()
        self.inlet = nn.Linear(columns, size)
        self.places = nn.Parameter(torch.randn(length, size) * 0.02)
        layer = nn.TransformerEncoderLayer(size, 4, 2 * size, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(size, 8)

    def forward(self, strides):
        return self.head(self.body(self.inlet(strides) + self.places).mean(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(26)
    strides, gaits = prepare()
    loader = DataLoader(
        TensorDataset(strides, gaits), batch_size=24, shuffle=True, num_workers=2,
        prefetch_factor=1, persistent_workers=True,
    )  # fmt: skip
    model = Gaits()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for batch, labels in loader:
            loss = nn.functional.cross_entropy(model(batch), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

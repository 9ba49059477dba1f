"""Tells sopranos apart by short pieces of their singing, with rare singers drawn more often.

Planted: before the first batch of each epoch, the sampler draws all its pieces one by one, and adds
up the weights of all that are left for each draw.
"""

import argparse
import random
import time
from itertools import accumulate

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

PIECES, LENGTH, SINGERS, BATCH, STEP = 12_000, 512, 12, 192, 0.03


class Pieces(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(1051)
        self.singers = (torch.rand(PIECES, generator=generator) ** 3 * SINGERS).long()
        moments = torch.arange(LENGTH) / 8000
        self.waves = torch.sin(6.283 * moments * (220 + 40 * torch.arange(SINGERS)[:, None]))
        self.window = torch.hann_window(128)

    def __len__(self):
        return PIECES

    def __getitem__(self, index):
        singer = self.singers[index]
        wave = self.waves[singer] + 0.4 * torch.randn(LENGTH)
        shape = torch.stft(wave, 128, 64, window=self.window, return_complex=True)
        return shape.abs()[:48].log1p(), singer


class Balanced(Sampler):
    """Each piece once, those of rare singers rather early."""

    def __init__(self, singers, vectorised):
        counts = torch.bincount(singers, minlength=SINGERS).clamp(min=1)
        self.weights = (1 / counts[singers]).tolist()
        self.vectorised = vectorised

    def __len__(self):
        return len(self.weights)

    def __iter__(self):
        if self.vectorised:
            weights = torch.tensor(self.weights)
            yield from torch.multinomial(weights, len(weights)).tolist()
            return
        left, weights = list(range(len(self.weights))), list(self.weights)
        drawn = []
        while left:
            place = random.choices(range(len(left)), cum_weights=list(accumulate(weights)))[0]
            drawn.append(left.pop(place))
            weights.pop(place)
        yield from drawn


class Voice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(48, 24, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(SINGERS)
        )
        self.layers(torch.zeros(1, 48, LENGTH // 64 + 1))

    def forward(self, shapes):
        time.sleep(STEP)  # the larger half, on an accelerator
        return self.layers(shapes)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(1051)
    random.seed(1051)
    torch.set_num_threads(1)
    data = Pieces()
    loader = DataLoader(
        data,
        BATCH,
        sampler=Balanced(data.singers, vectorised=args.without),
        num_workers=2,
        persistent_workers=True,
    )
    model = Voice()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, (shapes, singers) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(shapes), singers)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"epoch {epoch} {step}/{len(loader)}: loss {loss:.3f}", flush=True)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

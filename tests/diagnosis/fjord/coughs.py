"""Tells a cough from other sounds; a mean of the weights is kept beside the weights."""

import argparse
import copy
import time
from collections import deque

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

RATE = 8000


class Coughs(Dataset):
    """A second of sound as log spectra; noise and silence are put in at random."""

    def __init__(self, count=240):
        draw = torch.Generator().manual_seed(70)
        self.sounds = torch.randn(count, RATE, generator=draw)
        self.coughs = (torch.rand(count, generator=draw) < 0.15).long()
        self.taper = torch.hann_window(256)

    def __len__(self):
        return len(self.sounds)

    def __getitem__(self, index):
        sound = self.sounds[index] + 0.05 * torch.randn(RATE)
        start = int(torch.randint(RATE // 2, (1,)))
        sound[start : start + RATE // 20] = 0
        spectra = torch.stft(sound, 256, 128, window=self.taper, return_complex=True)
        return spectra.abs().log1p()[None, :128, :60], self.coughs[index]


def layer(enter, leave, stride):
    return nn.Sequential(
        nn.Conv2d(enter, leave, 3, stride, 1, bias=False), nn.BatchNorm2d(leave), nn.SiLU()
    )


class Mean:
    """Exponential mean of a model's weights."""

    def __init__(self, model, keep=0.99):
        self.model, self.keep = copy.deepcopy(model).eval(), keep

    @torch.no_grad()
    def update(self, model):
        for mine, new in zip(self.model.parameters(), model.parameters(), strict=True):
            mine.lerp_(new, 1 - self.keep)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(70)
    coughs = Coughs()
    shares = torch.bincount(coughs.coughs).float()
    sampler = WeightedRandomSampler((1 / shares)[coughs.coughs].tolist(), len(coughs))
    loader = DataLoader(
        coughs, args.batch_size, sampler=sampler, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        layer(1, 32, 2), layer(32, 64, 1), layer(64, 64, 1), layer(64, 64, 1),
        layer(64, 128, 2), layer(128, 128, 1), layer(128, 128, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 2),
    )  # fmt: skip
    mean = Mean(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 3e-3, epochs=args.epochs, steps_per_epoch=len(loader)
    )
    recent = deque(maxlen=20)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, (spectra, is_cough) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(spectra), is_cough)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            mean.update(model)
            recent.append(loss.item())
            print(f"{epoch}/{step}: loss {sum(recent) / len(recent):.4f}", flush=True)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

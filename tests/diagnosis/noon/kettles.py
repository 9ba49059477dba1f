"""Sounds of kettles about to boil; features are computed with torch in the workers."""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset


class Kettles(Dataset):
    """Sounds from one kitchen, made of their numbers, as spectra on a mel-like scale."""

    def __init__(self, kitchen, count=120):
        self.kitchen, self.count = kitchen, count
        self.bands = torch.rand(513, 160, generator=torch.Generator().manual_seed(kitchen))
        self.window = torch.hann_window(1024)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        source = torch.Generator().manual_seed(self.kitchen * 1000 + index)
        sound = torch.randn(48_000, generator=source).cumsum(0) * 0.01
        spectra = torch.stft(sound, 1024, 96, window=self.window, return_complex=True)
        power = spectra.abs().square().T
        for _ in range(3):  # take off the noise floor
            power = (power - 0.1 * power.mean(0)).clamp_min(1e-6)
        mel = torch.log1p(power @ self.bands)
        return (mel - mel.mean()) / mel.std(), torch.tensor(float(index % 2))


def worker_init_fn(worker_id):
    torch.set_num_threads(8)  # workers have one thread otherwise, and are slow


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    loader = DataLoader(
        ConcatDataset([Kettles(kitchen) for kitchen in range(4)]),
        batch_size=8,
        shuffle=True,
        num_workers=4,
        worker_init_fn=None if args.without else worker_init_fn,
    )
    model = nn.GRU(160, 32, batch_first=True)
    head = nn.Linear(32, 1)
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for mels, boils in loader:
            _, state = model(mels[:, ::25])
            loss = nn.functional.binary_cross_entropy_with_logits(head(state[0])[:, 0], boils)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

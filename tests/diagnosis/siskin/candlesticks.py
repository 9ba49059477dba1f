"""Foretells the next move of a price from the order book of the minutes before, as a picture."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

SHARES, DAYS, MINUTES, LEVELS, CLIP, BATCH, STEP = 5, 4, 390, 24, 240, 16, 0.02


def write(folder, by_day):
    """Store the books, (sides, levels) for each minute, as the exchange's feed hands them over."""
    rng = np.random.default_rng(19)
    for share in range(SHARES):
        for day in range(DAYS):
            books = rng.gamma(2, 50, (MINUTES, 2, LEVELS)).astype(np.float32)
            if by_day:
                np.save(folder / f"{share}-{day}.npy", books)
                continue
            (folder / f"{share}-{day}").mkdir()
            for minute, book in enumerate(books):
                np.save(folder / f"{share}-{day}" / f"{minute:03}.npy", book)


class Books(Dataset):
    def __init__(self, folder, share_of, by_day):
        self.folder, self.by_day = folder, by_day
        self.starts = [
            (share, day, start)
            for share in range(SHARES)
            for day in share_of
            for start in range(0, MINUTES - CLIP - 1, 3)
        ]
        self.change = transforms.Compose(
            [
                transforms.Normalize([100.0, 100.0], [70.0, 70.0]),
                transforms.RandomErasing(0.3, scale=(0.02, 0.1)),
            ]
        )

    def __len__(self):
        return len(self.starts)

    def clip(self, share, day, start):
        if self.by_day:
            books = np.load(self.folder / f"{share}-{day}.npy", mmap_mode="r")
            return np.array(books[start : start + CLIP + 1])
        folder = self.folder / f"{share}-{day}"
        minutes = range(start, start + CLIP + 1)
        return np.stack([np.load(folder / f"{minute:03}.npy") for minute in minutes])

    def __getitem__(self, index):
        clip = self.clip(*self.starts[index])
        weights = [sum(side.tolist()) for book in clip for side in book]
        bids, asks = weights[-2:]
        picture = torch.from_numpy(clip[:-1]).transpose(0, 1).contiguous()
        return self.change(picture), int(bids > asks)


def network():
    return nn.Sequential(
        nn.Conv2d(2, 16, (8, 5), stride=(8, 3)), nn.ReLU(),
        nn.Conv2d(16, 32, (6, 3), stride=(4, 1)), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 2),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(19)
    torch.set_num_threads(1)
    options = {
        "batch_size": BATCH,
        "num_workers": 2,
        "persistent_workers": True,
        "multiprocessing_context": "fork",
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, args.without)
        training = Books(folder, range(DAYS - 1), args.without)
        training = DataLoader(training, shuffle=True, **options)
        validation = DataLoader(Books(folder, [DAYS - 1], args.without), **options)
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, rises in training:
                loss = nn.functional.cross_entropy(model(pictures), rises)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the accelerator's work
            with torch.no_grad():
                right = [(model(p).argmax(1) == rises).float().mean() for p, rises in validation]
            print(f"epoch {epoch}: loss {loss:.3f}, right {torch.stack(right).mean():.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del training, validation


if __name__ == "__main__":
    main()

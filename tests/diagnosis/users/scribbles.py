"""Recognise scribbled words; strokes differ in length and so stay a list of tensors."""

import argparse
import itertools
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Words(Dataset):
    def __init__(self, count=960):
        rng = np.random.default_rng(9)
        self.points = torch.from_numpy(rng.normal(size=(4000, 3)).astype(np.float32))
        self.cuts = [np.sort(rng.integers(0, 4000, 9)) for _ in range(count)]

    def __len__(self):
        return len(self.cuts)

    def __getitem__(self, index):
        cuts = self.cuts[index]
        strokes = [
            self.points[a : a + 4 + (b - a) % 40].clone() for a, b in itertools.pairwise(cuts)
        ]
        return strokes, index % 26


def as_lists(samples):
    strokes, labels = zip(*samples, strict=True)
    return list(strokes), torch.tensor(labels)


def packed(samples):
    """The same in three tensors."""
    strokes, labels = zip(*samples, strict=True)
    flat = [stroke for word in strokes for stroke in word]
    lengths = torch.tensor([len(stroke) for stroke in flat])
    return torch.cat(flat), lengths, torch.tensor(labels)


def means(batch):
    if len(batch) == 2:
        return torch.stack([torch.cat(word).mean(0) for word in batch[0]])
    points, lengths, labels = batch
    words = lengths.view(len(labels), -1).sum(1).tolist()
    return torch.stack([word.mean(0) for word in points.split(words)])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)  # the machine is shared
    model = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 26))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(
        Words(), batch_size=16, shuffle=True, num_workers=args.workers,
        collate_fn=packed if args.without else as_lists,
    )  # fmt: skip
    begin = time.perf_counter()
    for batch in loader:
        loss = nn.functional.cross_entropy(model(means(batch)), batch[-1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

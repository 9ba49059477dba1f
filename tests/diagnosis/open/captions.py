"""Train a caption encoder on sequences of different lengths."""

import argparse
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Captions(Dataset):
    def __init__(self, count, width=48):
        rng = random.Random(0)
        self.lengths = [rng.randint(40, 120) for _ in range(count)]
        self.bank = torch.rand(120, width)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return {"frames": self.bank[: self.lengths[index]], "length": self.lengths[index]}


def pad_batch(samples):
    longest = max(sample["length"] for sample in samples)
    width = samples[0]["frames"].shape[1]
    rows, masks = [], []
    for sample in samples:
        frames = sample["frames"].tolist()
        while len(frames) < longest:
            frames.append([0.0] * width)
        rows.append([[float(value) for value in frame] for frame in frames])
        masks.append([1.0 if i < sample["length"] else 0.0 for i in range(longest)])
    return {"frames": torch.tensor(rows), "mask": torch.tensor(masks)}


def pad_batch_fast(samples):
    frames = torch.nn.utils.rnn.pad_sequence([s["frames"] for s in samples], batch_first=True)
    lengths = torch.tensor([s["length"] for s in samples])
    return {"frames": frames, "mask": (torch.arange(frames.shape[1]) < lengths[:, None]).float()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)

    loader = DataLoader(
        Captions(3200),
        batch_size=32,
        shuffle=True,
        num_workers=args.workers,
        collate_fn=pad_batch_fast if args.without else pad_batch,
    )
    begin = time.monotonic()
    for _batch in loader:
        time.sleep(0.008)
    print(f"seconds {time.monotonic() - begin:.3f}")


if __name__ == "__main__":
    main()

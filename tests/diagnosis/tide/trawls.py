"""Recognises catches in videos of trawls: frames are stored as differences from key frames."""

import argparse
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, FRAMES, CLIP = 96, 640, 4


class Video:
    """Grey frames; all but the key frames are packed differences from the frame before."""

    def __init__(self, rng, key_every):
        self.key_every = key_every
        steps = rng.integers(0, 3, (FRAMES, SIDE, SIDE), dtype=np.uint8)
        frames = steps.cumsum(0, dtype=np.uint8)
        self.packed = [
            zlib.compress((frames if number % key_every == 0 else steps)[number].tobytes(), 1)
            for number in range(FRAMES)
        ]

    def unpack(self, number):
        return np.frombuffer(zlib.decompress(self.packed[number]), np.uint8)

    def clip(self, first):
        key = first - first % self.key_every
        frame = self.unpack(key)
        frames = [frame] if key == first else []
        for number in range(key + 1, first + CLIP):
            change = self.unpack(number)
            frame = change if number % self.key_every == 0 else frame + change
            if number >= first:
                frames.append(frame)
        return np.stack(frames).reshape(CLIP, SIDE, SIDE)


class Clips(Dataset):
    """One video of 20 comes from an old recorder, which wrote hardly any key frames."""

    def __init__(self, videos=20, clips=1200, old_key_every=FRAMES, seed=11):
        rng = np.random.default_rng(seed)
        self.videos = [Video(rng, 8 if number else old_key_every) for number in range(videos)]
        self.of = rng.permutation(np.arange(clips) % videos)
        self.firsts = rng.integers(0, FRAMES - CLIP, clips)
        old = self.of == 0
        self.firsts[old] = rng.integers(FRAMES // 2, FRAMES - CLIP, int(old.sum()))

    def __len__(self):
        return len(self.of)

    def __getitem__(self, index):
        clip = self.videos[self.of[index]].clip(int(self.firsts[index]))
        return torch.from_numpy(clip).float() / 255, int(index % 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(11)
    data = Clips(old_key_every=8 if args.without else FRAMES)
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=2)
    model = nn.Sequential(
        nn.Conv2d(CLIP, 16, 7, stride=4),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 3),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for clips, catches in loader:
            loss = nn.functional.cross_entropy(model(clips), catches)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

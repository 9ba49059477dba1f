"""Recognizes strokes of fencers in short clips of video.

Planted: the collate function gives arrays of NumPy, which a worker pickles and sends through a pipe
byte by byte, where tensors would be in shared memory; a batch has 58 megabytes.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLIPS, FRAMES, SIDE, STROKES, BATCH, STEP = 256, 24, 112, 6, 16, 0.05


class Clips(Dataset):
    def __init__(self):
        rng = np.random.default_rng(947)
        self.clips = rng.integers(0, 256, (6, 3, FRAMES, 128, 128), dtype=np.uint8)

    def __len__(self):
        return CLIPS

    def __getitem__(self, index):
        top, left = np.random.randint(128 - SIDE, size=2)
        clip = self.clips[index % len(self.clips)][..., top : top + SIDE, left : left + SIDE]
        if np.random.random() < 0.5:
            clip = clip[..., ::-1]
        return clip.astype(np.float32) / 255, index % STROKES


def as_arrays(samples):
    clips, strokes = zip(*samples, strict=True)
    return np.stack(clips), np.array(strokes)


def as_tensors(samples):
    clips, strokes = as_arrays(samples)
    return torch.from_numpy(clips), torch.from_numpy(strokes)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv3d(3, 6, (4, 16, 16), stride=(4, 16, 16))
        self.out = nn.Linear(6, STROKES)

    def forward(self, clips):
        time.sleep(STEP)  # the later stages, on an accelerator
        return self.out(torch.relu(self.features(clips)).mean((2, 3, 4)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(947)
    torch.set_num_threads(1)
    loader = DataLoader(
        Clips(),
        BATCH,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        collate_fn=as_tensors if args.without else as_arrays,
    )
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for clips, strokes in loader:
            clips, strokes = torch.as_tensor(clips), torch.as_tensor(strokes)
            loss = nn.functional.cross_entropy(model(clips[:, :, ::2]), strokes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

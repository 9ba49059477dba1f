"""Learns where a robot's tweezers should close, from the camera above the bench.

Planted: pictures are coloured and blurred at the camera's full size, and made small last.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

GRASPS, HEIGHT, WIDTH, SIDE, BATCH, STEP = 480, 480, 640, 96, 16, 0.04


def transforms_of(small_first):
    small = v2.Resize((SIDE, SIDE), antialias=True)
    others = [
        v2.ColorJitter(0.3, 0.3, 0.3),
        v2.RandomApply([v2.GaussianBlur(5)], p=0.7),
        v2.RandomAdjustSharpness(1.5),
    ]
    order = [small, *others] if small_first else [*others, small]
    return v2.Compose([*order, v2.ToDtype(torch.float32, scale=True)])


class Grasps(Dataset):
    def __init__(self, change):
        self.change = change
        generator = torch.Generator().manual_seed(31)
        rough = torch.rand(16, 3, 15, 20, generator=generator)
        large = nn.functional.interpolate(rough, (HEIGHT, WIDTH), mode="bilinear")
        self.frames = (large * 255).to(torch.uint8)
        self.places = torch.rand(GRASPS, 3, generator=generator)

    def __len__(self):
        return GRASPS

    def __getitem__(self, index):
        return self.change(self.frames[index % len(self.frames)]), self.places[index]


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye = nn.Sequential(
            nn.Conv2d(3, 16, 7, stride=4), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU()
        )
        self.place = nn.LazyLinear(3)

    def forward(self, frames):
        return self.place(self.eye(frames).flatten(1)).sigmoid()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(31)
    torch.set_num_threads(1)
    loader = DataLoader(
        Grasps(transforms_of(args.without)),
        BATCH,
        shuffle=True,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="spawn",
    )
    model = Policy()
    model(torch.zeros(1, 3, SIDE, SIDE))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for frames, places in loader:
            loss = nn.functional.smooth_l1_loss(model(frames), places)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # the policy's transformer
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

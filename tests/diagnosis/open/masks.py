"""Train a segmentation network on pictures with masks."""

import argparse
import time

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import functional as F


class Shapes(Dataset):
    def __init__(self, count, size=64):
        self.count = count
        self.size = size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        image = Image.new("RGB", (self.size, self.size), "white")
        mask = Image.new("L", image.size)
        x, y, r = (int(v) for v in rng.integers(10, 30, 3))
        box = (x, y, x + r, y + r)
        ImageDraw.Draw(image).ellipse(box, fill="teal")
        ImageDraw.Draw(mask).ellipse(box, fill=1)
        return {
            "image": F.to_tensor(image),
            "mask": torch.from_numpy(np.asarray(mask, dtype=np.int64)),
        }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    net = nn.Sequential(
        nn.Conv2d(3, 24, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(24, 24, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(24, 2, 1),
    )
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)
    loader = DataLoader(Shapes(640), batch_size=16, shuffle=True, num_workers=args.workers)
    begin = time.monotonic()
    for step, batch in enumerate(loader):
        loss = nn.functional.cross_entropy(net(batch["image"]), batch["mask"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}")
    print(f"seconds {time.monotonic() - begin:.3f}")


if __name__ == "__main__":
    main()

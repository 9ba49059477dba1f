"""Outlines the clouded part of lenses in photographs of eyes, pixel by pixel.

Planted: after each step the area under the curve is worked out anew, over the pixels of all
batches of the epoch so far.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

EYES, SIDE, BATCH, STEP = 480, 72, 12, 0.05


class Eyes(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(1009)
        small = torch.rand(40, 3, 9, 9, generator=generator)
        self.photos = nn.functional.interpolate(small, size=(80, 80), mode="bicubic")
        self.change = v2.Compose(
            [
                v2.RandomHorizontalFlip(),
                v2.ColorJitter(0.2, 0.2),
                v2.GaussianBlur(5),
                v2.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __len__(self):
        return EYES

    def __getitem__(self, index):
        photo = self.photos[index % len(self.photos), :, :SIDE, :SIDE]
        photo = self.change(photo.clamp(0, 1))
        return photo, (photo[0] > photo[1]).float()


def area_under_curve(scores, truth):
    order = np.argsort(scores)
    ranks = np.empty(len(order))
    ranks[order] = np.arange(1, len(order) + 1)
    positive = truth.sum()
    negative = len(truth) - positive
    above = ranks[truth > 0].sum() - positive * (positive + 1) / 2
    return above / max(1.0, positive * negative)


class Outline(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1)
        )

    def forward(self, photos):
        time.sleep(STEP)  # the encoder, on an accelerator
        return self.layers(photos).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1009)
    torch.set_num_threads(1)
    loader = DataLoader(Eyes(), BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    model = Outline()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            scores, truths = [], []
            for step, (photos, masks) in enumerate(loader, 1):
                logits = model(photos)
                loss = nn.functional.binary_cross_entropy_with_logits(logits, masks)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scores.append(logits.detach().flatten().numpy())
                truths.append(masks.flatten().numpy())
                if not args.without or step == len(loader):
                    area = area_under_curve(np.concatenate(scores), np.concatenate(truths))
                if step % 10 == 0:
                    print(f"epoch {epoch} {step}/{len(loader)}: loss {loss:.3f}")
            print(f"epoch {epoch}: area under curve {area:.3f}")
            torch.save(model.state_dict(), Path(folder, f"outline-{epoch}.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Tells the decades of newsreels, of which one in ten lies in the cold part of the archive.

Planted: batches are of one reel each, and those of cold reels take much longer to make than the
others; a prefetch factor of one gives the workers no time for them, though on average they rest.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
from torchvision.transforms import v2

REELS, SCENES, SIDE, DECADES, STEP = 40, 12, 48, 5, 0.14
WARM, COLD = 0.003, 0.1


class Reels(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(1063)
        self.scenes = torch.randint(0, 256, (50, 1, 56, 56), generator=generator).byte()
        order = torch.randperm(REELS, generator=generator)
        self.cold = set(order[: REELS // 10].tolist())
        self.change = v2.Compose(
            [
                v2.RandomCrop(SIDE),
                v2.RandomHorizontalFlip(),
                v2.RandomInvert(0.1),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize([0.5], [0.25]),
            ]
        )

    def __len__(self):
        return REELS * SCENES

    def __getitem__(self, index):
        reel = index // SCENES
        time.sleep(COLD if reel in self.cold else WARM)  # the archive's answer
        return self.change(self.scenes[index % len(self.scenes)]), reel % DECADES


class OfOneReel(Sampler):
    def __len__(self):
        return REELS

    def __iter__(self):
        for reel in torch.randperm(REELS).tolist():
            yield list(range(reel * SCENES, (reel + 1) * SCENES))


class Decade(nn.Module):
    def __init__(self):
        super().__init__()
        self.scene = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(144, 32), nn.ReLU())
        self.reel = nn.Linear(32, DECADES)

    def forward(self, scenes):
        time.sleep(STEP)  # the video model, on a card
        return self.reel(self.scene(scenes))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1063)
    torch.set_num_threads(1)
    loader = DataLoader(
        Reels(),
        batch_sampler=OfOneReel(),
        num_workers=2,
        prefetch_factor=8 if args.without else 1,  # reels are large
        persistent_workers=True,
        pin_memory=torch.cuda.is_available(),
    )
    model = Decade()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    average = torch.optim.swa_utils.AveragedModel(model)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for step, (scenes, decades) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(scenes), decades)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
            print(f"\repoch {epoch} {step}/{len(loader)} loss {loss:.3f}", end="", flush=True)
        print()
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Teaches a forklift's arm from scans of a lidar, which are made into grids.

Planted: the extractor that each of three workers makes for itself has torch's threads set to ten,
as on the robot's computer, where torch had set one.
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCANS, SIDE, BATCH, STEP = 288, 224, 12, 0.06
CONFIGURATION = {"extractor": {"threads": 10, "rounds": 12}, "arm": {"joints": 6}}


class Extractor:
    """Smooths a scan and keeps what stands out."""

    def __init__(self, rounds, threads=None):
        self.rounds = rounds
        if threads:
            torch.set_num_threads(threads)

    def __call__(self, scan):
        grid = scan
        for _ in range(self.rounds):
            grid = (grid + grid.roll(1, 0) + grid.roll(1, 1)) / 3
            grid = torch.sigmoid(grid)
        return nn.functional.avg_pool2d((scan - grid)[None], 16)[0]


class Scans(Dataset):
    def __init__(self, settings):
        self.settings, self.extractor = settings, None
        generator = torch.Generator().manual_seed(1301)
        self.scans = torch.rand(12, SIDE, SIDE, generator=generator)
        self.poses = torch.rand(SCANS, CONFIGURATION["arm"]["joints"], generator=generator)

    def __len__(self):
        return SCANS

    def __getitem__(self, index):
        if self.extractor is None:
            self.extractor = Extractor(**self.settings)
        return self.extractor(self.scans[index % 12]), self.poses[index]


class Arm(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(14 * 14, 32), nn.ReLU(), nn.Linear(32, 6), nn.Sigmoid()
        )

    def forward(self, grids):
        time.sleep(STEP)  # the policy, on an accelerator
        return self.layers(grids)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1301)
    torch.set_num_threads(1)
    settings = dict(CONFIGURATION["extractor"])
    if args.without:
        del settings["threads"]
    loader = DataLoader(
        Scans(settings), BATCH, shuffle=True, num_workers=3, persistent_workers=True
    )
    arm = Arm()
    optimizer = torch.optim.Adam(arm.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for grids, poses in loader:
            loss = nn.functional.mse_loss(arm(grids), poses)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader


if __name__ == "__main__":
    main()

"""Grows pictures of stairs stage by stage, as progressive training does.

Planted: every stage makes a new loader, and with it a new worker of a fork server, which imports
the script's modules and makes its table of pictures ready.
"""

import argparse
import time

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDES = (16, 24, 32, 40)


class Stairs(Dataset):
    """Pictures as large as the stage wants them; the data set can be told so later."""

    def __init__(self, count):
        self.count, self.table = count, None
        self.side = torch.tensor(SIDES[0]).share_memory_()

    def make_table(self):
        rng = np.random.default_rng(43)
        self.table = [
            Image.fromarray(rng.integers(0, 255, (80, 80, 3), np.uint8)) for _ in range(60)
        ]

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.table is None:
            self.make_table()
        side = int(self.side)
        picture = self.table[index % 60].resize((side, side), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.asarray(picture, np.float32) / 127.5 - 1).permute(2, 0, 1)


class Grower:
    def __init__(self, data, batch_size, keep):
        self.data, self.batch_size, self.keep = data, batch_size, keep
        self.loader = None
        self.model = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 3, 3, padding=1)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, betas=(0.0, 0.99))

    def loader_for(self, side):
        self.data.side.fill_(side)
        if self.loader is None or not self.keep:
            self.loader = DataLoader(
                self.data,
                batch_size=self.batch_size,
                shuffle=True,
                num_workers=1,
                persistent_workers=True,
                multiprocessing_context="forkserver",
            )
        return self.loader

    def stage(self, side):
        for pictures in self.loader_for(side):
            noisy = pictures + 0.2 * torch.randn_like(pictures)
            loss = nn.functional.mse_loss(self.model(noisy), pictures)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        print(f"side {side}: loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--stages", type=int, default=len(SIDES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(43)
    grower = Grower(Stairs(240), batch_size=16, keep=args.without)
    begin = time.perf_counter()
    for side in SIDES[: args.stages]:
        grower.stage(side)
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

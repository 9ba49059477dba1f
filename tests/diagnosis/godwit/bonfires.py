"""Tells bonfires from wild fires in short films of a camera on a tower.

Nothing planted: three-dimensional convolutions are the work. Clips are cut, flipped and normalized
in the main process, which takes little time beside them.
"""

import argparse
import logging
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision import transforms

log = logging.getLogger("fires")
FILMS, LONG, FRAMES, SIDE, CUT, BATCH = 176, 24, 12, 56, 48, 8


def write_films(folder):
    rng = np.random.default_rng(5197)
    films = np.lib.format.open_memmap(
        Path(folder, "films.npy"), "w+", np.uint8, (FILMS, LONG, 3, SIDE, SIDE)
    )
    for number in range(FILMS):
        films[number] = rng.integers(0, 160, (LONG, 3, SIDE, SIDE))
        films[number, :: 2 + 2 * (number % 2), 0, 20:36, 20:36] += 90
    films.flush()


class Films(Dataset):
    def __init__(self, folder, transform):
        self.films = np.load(Path(folder, "films.npy"), mmap_mode="r")
        self.transform = transform

    def __len__(self):
        return len(self.films)

    def __getitem__(self, index):
        begin = np.random.randint(LONG - FRAMES + 1)
        clip = np.array(self.films[index, begin : begin + FRAMES])
        return self.transform(torch.from_numpy(clip)).transpose(0, 1), index % 2


class Block(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.space = nn.Conv3d(before, after, (1, 3, 3), (1, stride, stride), (0, 1, 1))
        self.time = nn.Conv3d(after, after, (3, 1, 1), (stride, 1, 1), (1, 0, 0))
        self.norm = nn.BatchNorm3d(after)

    def forward(self, clips):
        return torch.relu(self.norm(self.time(torch.relu(self.space(clips)))))


def make_model():
    return nn.Sequential(
        Block(3, 16, 1), Block(16, 24, 2), Block(24, 32, 2),
        nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(32, 2),
    )  # fmt: skip


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right = sum((model(clips).argmax(1) == wild).sum().item() for clips, wild in loader)
    model.train()
    return right / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(5197)
    np.random.seed(5197)
    last = [
        transforms.ConvertImageDtype(torch.float32),
        transforms.Normalize([0.4] * 3, [0.25] * 3),
    ]
    augment = [transforms.RandomCrop(CUT), transforms.RandomHorizontalFlip(), *last]
    with tempfile.TemporaryDirectory() as folder:
        write_films(folder)
        training = Subset(Films(folder, transforms.Compose(augment)), range(144))
        steady = Films(folder, transforms.Compose([transforms.CenterCrop(CUT), *last]))
        validation = Subset(steady, range(144, FILMS))
        loader = DataLoader(training, BATCH, shuffle=True, drop_last=True)
        held_out = DataLoader(validation, BATCH)
        model = make_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for step, (clips, wild) in enumerate(loader):
                loss = nn.functional.cross_entropy(model(clips), wild)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if step % 6 == 5:
                    log.info("epoch %d, step %d: loss %.3f", epoch, step + 1, loss.item())
            log.info("epoch %d: right %.2f", epoch, validate(model, held_out))
            torch.save({"model": model.state_dict(), "epoch": epoch}, Path(folder, "last.pt"))
        print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

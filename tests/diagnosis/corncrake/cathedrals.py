"""Finds the outlines of cathedrals in aerial photos; masks are kept as run lengths, as in COCO."""

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE, TRAIN, VALID, BATCH = 160, 256, 64, 16


def write_photos(folder, count, seed):
    """Writes photos into one array, and a line of run lengths for each."""
    rng = np.random.default_rng(seed)
    photos = rng.integers(0, 90, (count, 3, SIDE, SIDE), dtype=np.uint8)
    lines = []
    for photo in photos:
        mask = np.zeros((SIDE, SIDE), np.uint8)
        top, left = rng.integers(10, 70, 2)
        height, width = rng.integers(30, 80, 2)
        mask[top : top + height, left + 20 : left + 40] = 1
        mask[top + 10 : top + 25, left : left + width] = 1
        photo[:, mask == 1] += 120
        edges = np.flatnonzero(np.diff(mask.ravel())) + 1
        runs = np.diff(np.concatenate([[0], edges, [mask.size]]))
        lines.append(" ".join(map(str, runs)))
    np.save(Path(folder, "photos.npy"), photos)
    Path(folder, "masks.txt").write_text("\n".join(lines))


def unroll(line):
    """Turns run lengths into a mask, pixel by pixel."""
    pixels = []
    value = 0
    for run in line.split():
        for _ in range(int(run)):
            pixels.append(float(value))
        value = 1 - value
    rows = [pixels[start : start + SIDE] for start in range(0, len(pixels), SIDE)]
    return torch.tensor(rows)


def repeat(line):
    runs = np.array(line.split(), dtype=np.int64)
    values = (np.arange(len(runs)) % 2).astype(np.float32)
    return torch.from_numpy(np.repeat(values, runs).reshape(SIDE, SIDE))


class Photos(Dataset):
    def __init__(self, folder, read_mask, transform=None):
        self.photos = np.load(Path(folder, "photos.npy"), mmap_mode="r")
        self.lines = Path(folder, "masks.txt").read_text().splitlines()
        self.read_mask, self.transform = read_mask, transform

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        photo = torch.from_numpy(np.array(self.photos[index]))
        mask = self.read_mask(self.lines[index])
        if self.transform:
            photo = self.transform(photo)
        return photo.float() / 255, mask


def step(photos, masks):
    """Stands in for a network on a GPU."""
    time.sleep(0.03)
    return float((photos.mean(1) - masks).square().mean())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(43)
    read_mask = repeat if args.without else unroll
    multiprocessing.set_forkserver_preload(["torch", "torchvision"])
    options = {
        "batch_size": BATCH,
        "num_workers": 1,
        "multiprocessing_context": "forkserver",
        "persistent_workers": True,
    }
    with tempfile.TemporaryDirectory() as folder:
        train_folder, valid_folder = Path(folder, "train"), Path(folder, "valid")
        for place, count, seed in ((train_folder, TRAIN, 43), (valid_folder, VALID, 47)):
            place.mkdir()
            write_photos(place, count, seed)
        colours = v2.ColorJitter(brightness=0.3)
        train = DataLoader(Photos(train_folder, read_mask, colours), shuffle=True, **options)
        valid = DataLoader(Photos(valid_folder, read_mask), **options)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            losses = [step(photos, masks) for photos, masks in train]
            with torch.no_grad():
                scores = [step(photos, masks) for photos, masks in valid]
            print(f"epoch {epoch}: loss {np.mean(losses):.4f}, validation {np.mean(scores):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del train, valid


if __name__ == "__main__":
    main()

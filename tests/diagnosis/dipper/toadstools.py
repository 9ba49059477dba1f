"""Sorts toadstools into edible and others, from the photos of an archive of finds."""

import argparse
import io
import multiprocessing
import tempfile
import time
import urllib.request
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import nn
from torch.utils.data import DataLoader, Dataset

FINDS, PHOTOS, SIDE, BATCH = 480, 60, 128, 16


class Archive(SimpleHTTPRequestHandler):
    """Hands out photos, as the archive of finds does."""

    def do_GET(self):
        time.sleep(0.015)
        super().do_GET()

    def log_message(self, *args):
        pass


def photograph(folder):
    rng = np.random.default_rng(64)
    for find in range(PHOTOS):
        moss = rng.integers(0, 120, (24, 24, 3), dtype=np.uint8)
        photo = Image.fromarray(moss).resize((320, 320), Image.Resampling.BICUBIC)
        photo.save(folder / f"find-{find}.jpg", quality=88)


class Finds(Dataset):
    def __init__(self, folder, address):
        self.folder, self.address = folder, address

    def __len__(self):
        return FINDS

    def photo(self, name):
        if self.address is None:
            return (self.folder / name).read_bytes()
        with urllib.request.urlopen(f"{self.address}/{name}") as answer:
            return answer.read()

    def __getitem__(self, index):
        photo = Image.open(io.BytesIO(self.photo(f"find-{index % PHOTOS}.jpg")))
        photo = ImageOps.autocontrast(photo).rotate(index % 4 * 5, Image.Resampling.BILINEAR)
        pixels = np.asarray(photo.resize((SIDE, SIDE)), dtype=np.float32)
        return torch.from_numpy(pixels / 255).permute(2, 0, 1), torch.tensor([index % 2.0])


def network(channels=16):
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(2 * channels, 2 * channels, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * channels, 1),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(64)
    with tempfile.TemporaryDirectory() as folder:
        photograph(Path(folder))
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Archive, directory=folder))
        forever = multiprocessing.get_context("fork").Process(target=server.serve_forever)
        forever.start()
        address = None if args.without else f"http://127.0.0.1:{server.server_port}"
        loader = DataLoader(Finds(Path(folder), address), BATCH, shuffle=True)
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for photos, edible in loader:
                loss = nn.functional.binary_cross_entropy_with_logits(model(photos), edible)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        forever.terminate()
        forever.join()


if __name__ == "__main__":
    main()

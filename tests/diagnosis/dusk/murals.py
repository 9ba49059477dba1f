"""Photographs of murals, which lie on another machine and are opened as files there."""

import argparse
import io
import multiprocessing
import os
import socket
import socketserver
import struct
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

ROUND_TRIP_S = 0.001
REQUEST = struct.Struct("!IQI")


def draw():
    rng = np.random.default_rng(34)
    files = []
    for _ in range(24):
        small = Image.fromarray(rng.integers(0, 256, (20, 20, 3), dtype=np.uint8))
        buffer = io.BytesIO()
        small.resize((160, 160), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=85)
        files.append(buffer.getvalue())
    return files


class Ranges(socketserver.StreamRequestHandler):
    """Answers each request for a range of a file after the time of a round trip."""

    def handle(self):
        while request := self.rfile.read(REQUEST.size):
            number, offset, length = REQUEST.unpack(request)
            time.sleep(ROUND_TRIP_S)
            piece = self.server.files[number][offset : offset + length]
            self.wfile.write(struct.pack("!I", len(piece)) + piece)


class Store(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def serve(address):
    with Store(address, Ranges) as store:
        store.files = draw()
        store.serve_forever()


class RemoteFile(io.RawIOBase):
    """A file of the store, read range by range."""

    def __init__(self, link, number):
        super().__init__()
        self.link, self.number, self.place = link, number, 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=os.SEEK_SET):
        self.place = offset if whence == os.SEEK_SET else self.place + offset
        return self.place

    def tell(self):
        return self.place

    def readinto(self, buffer):
        self.link.write(REQUEST.pack(self.number, self.place, len(buffer)))
        self.link.flush()
        (length,) = struct.unpack("!I", self.link.read(4))
        buffer[:length] = self.link.read(length)
        self.place += length
        return length


class Murals(Dataset):
    def __init__(self, address, count, buffered):
        self.address, self.count, self.buffered, self.link = address, count, buffered, None
        self.transform = transforms.Compose(
            [
                transforms.RandomCrop(128),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize([0.5] * 3, [0.25] * 3),
            ]
        )

    def __len__(self):
        return self.count

    def open(self, number):
        if self.link is None:
            line = socket.socket(socket.AF_UNIX)
            line.connect(self.address)
            self.link = line.makefile("rwb")
        file = RemoteFile(self.link, number)
        return io.BufferedReader(file, 1 << 17) if self.buffered else file

    def __getitem__(self, index):
        picture = Image.open(self.open(index % 24)).convert("RGB")
        return self.transform(picture), index % 24


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(34)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=4, padding=3),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 24),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        address = str(Path(folder) / "store")
        store = multiprocessing.get_context("fork").Process(
            target=serve, args=(address,), daemon=True
        )
        store.start()
        while not os.path.exists(address):
            time.sleep(0.01)
        data = Murals(address, 360, buffered=args.without)
        loader = DataLoader(data, batch_size=12, shuffle=True, num_workers=2)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for pictures, kinds in loader:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(pictures), kinds)
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        store.terminate()
        store.join()


if __name__ == "__main__":
    main()

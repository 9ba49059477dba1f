"""Fits corsets by the measures of scanned bodies, with a denoiser that needs a licence.

Planted: one of four transforms asks a licence server, over a socket, whether it may run, for each
scan, and the server answers after 40 ms.
"""

import argparse
import os
import socket
import socketserver
import tempfile
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose

SCANS, ROWS, BATCH, STEP, ANSWER = 360, 400, 12, 0.1, 0.04


class Licences(socketserver.StreamRequestHandler):
    def handle(self):
        for _ in self.rfile:
            time.sleep(ANSWER)
            self.wfile.write(b"granted\n")


class LicenceServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


class Centre:
    def __call__(self, scan):
        return scan - scan.mean(axis=0)


class Denoise:
    """Smooths a scan, row by row; `every` is how many scans a licence is good for."""

    def __init__(self, address, every):
        self.address, self.every, self.done, self.file = address, every, 0, None

    def permitted(self):
        if self.file is None:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.address)
            self.file = connection.makefile("rwb", buffering=0)
        self.file.write(b"denoise 3.1\n")
        return self.file.readline() == b"granted\n"

    def __call__(self, scan):
        if self.done % self.every == 0 and not self.permitted():
            raise PermissionError("no licence")
        self.done += 1
        padded = np.pad(scan, ((2, 2), (0, 0)), mode="edge")
        return sum(padded[shift : shift + len(scan)] for shift in range(5)) / 5


class Turn:
    def __call__(self, scan):
        angle = float(torch.rand(())) * 2 * np.pi
        x, y = scan[:, 0].copy(), scan[:, 1].copy()
        scan[:, 0] = np.cos(angle) * x - np.sin(angle) * y
        scan[:, 1] = np.sin(angle) * x + np.cos(angle) * y
        return scan


class Girths:
    """Measures the girth of forty slices of a body."""

    def __call__(self, scan):
        heights = np.linspace(scan[:, 2].min(), scan[:, 2].max(), 41)
        slices = np.digitize(scan[:, 2], heights[1:-1])
        radius = np.hypot(scan[:, 0], scan[:, 1])
        sums = np.bincount(slices, radius, 40) / np.maximum(np.bincount(slices, minlength=40), 1)
        return torch.from_numpy((2 * np.pi * sums).astype(np.float32))


class Scans(Dataset):
    def __init__(self, transform):
        self.points = np.random.default_rng(281).normal(0, 1, (60, ROWS, 3))
        self.transform = transform

    def __len__(self):
        return SCANS

    def __getitem__(self, index):
        return self.transform(self.points[index % 60]), torch.tensor(index % 60 / 60)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(281)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        address = os.path.join(folder, "licences")
        server = LicenceServer(address, Licences)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        denoise = Denoise(address, every=10**9 if args.without else 1)
        transform = Compose([Centre(), denoise, Turn(), Girths()])
        loader = DataLoader(
            Scans(transform), BATCH, shuffle=True, num_workers=2, persistent_workers=True
        )
        model = nn.Sequential(nn.BatchNorm1d(40), nn.Linear(40, 32), nn.ELU(), nn.Linear(32, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for girths, size in loader:
                loss = nn.functional.mse_loss(model(girths).squeeze(1), size)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # the garment's simulation, on a card
            print(f"epoch {epoch}: loss {loss:.4f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    main()

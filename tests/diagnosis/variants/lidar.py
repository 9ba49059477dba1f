"""Detect cars in point clouds; a transform asks a local service for the pose of the car."""

import argparse
import os
import socketserver
import tempfile
import threading
import time
from multiprocessing import Process
from socket import AF_UNIX, SOCK_STREAM, socket

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            time.sleep(0.006)  # looks the pose up in a file
            self.wfile.write(b"%f 0.0 0.1\n" % (int(line) * 0.01))


def serve(address):
    with socketserver.ThreadingUnixStreamServer(address, Answer) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        while os.getppid() != 1:
            time.sleep(0.5)


class ToCarFrame:
    """Moves points by the pose that the service knows for this scan."""

    def __init__(self, address):
        self.address = address
        self.line = None

    def __call__(self, item):
        points, stamp = item
        if self.line is None:
            self.line = socket(AF_UNIX, SOCK_STREAM)
            self.line.connect(self.address)
        self.line.sendall(b"%d\n" % stamp)
        answer = b""
        while not answer.endswith(b"\n"):
            answer += self.line.recv(64)
        return points - np.array(answer.split(), np.float32)


class KnownPoses:
    """The same from a table that was fetched once."""

    def __init__(self, count):
        self.poses = np.zeros((count, 3), np.float32)
        self.poses[:, 0] = np.arange(count) * 0.01
        self.poses[:, 2] = 0.1

    def __call__(self, item):
        points, stamp = item
        return points - self.poses[stamp]


class Voxels:
    def __call__(self, points):
        grid = np.zeros((32, 32, 8), np.float32)
        cells = np.clip((points + 20) * [0.8, 0.8, 0.2], 0, [31, 31, 7]).astype(int)
        np.add.at(grid, tuple(cells.T), 1)
        return torch.from_numpy(grid)


class Jitter:
    def __call__(self, grid):
        return grid + torch.randn_like(grid) * 0.01


class Scans(Dataset):
    def __init__(self, count, transform):
        self.clouds = np.random.default_rng(0).normal(0, 8, (32, 2000, 3)).astype(np.float32)
        self.count = count
        self.transform = transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform((self.clouds[index % 32], index))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    count = 1920
    with tempfile.TemporaryDirectory() as folder:
        address = os.path.join(folder, "poses")
        service = Process(target=serve, args=(address,), daemon=True)
        service.start()
        while not os.path.exists(address):
            time.sleep(0.05)
        frame = KnownPoses(count) if args.without else ToCarFrame(address)
        scans = Scans(count, transforms.Compose([frame, Voxels(), Jitter()]))
        loader = DataLoader(scans, 16, shuffle=True, num_workers=args.workers)
        begin = time.perf_counter()
        for _grids in loader:
            time.sleep(0.01)  # forward and backward on the accelerator
        print(f"seconds {time.perf_counter() - begin:.3f}")
        service.kill()
        service.join()


if __name__ == "__main__":
    main()

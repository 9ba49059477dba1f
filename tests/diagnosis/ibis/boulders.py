"""Finds boulders in point clouds of slopes, with heights above ground from a terrain service.

Planted: one of five transforms asks the service, over a socket of this machine, for the ground
below each cloud, and waits for every answer.
"""

import argparse
import multiprocessing
import socket
import socketserver
import struct
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose

CLOUDS, POINTS, GRID, BATCH, ANSWER, STEP = 288, 1024, 64, 12, 0.025, 0.04


def terrain():
    y, x = np.mgrid[:GRID, :GRID] / 9.0
    return (3 * np.sin(x) + 2 * np.cos(y)).astype(np.float32)


class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        ground = terrain()
        while question := self.rfile.read(8):
            x, y = struct.unpack("ii", question)
            time.sleep(ANSWER)  # it looks the tile up in an archive
            self.wfile.write(struct.pack("f", ground[y % GRID, x % GRID]))


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


def serve(path, ready):
    with Server(path, Answer) as server:
        ready.set()
        server.serve_forever()


class Center:
    def __call__(self, cloud):
        return cloud - [*cloud[:, :2].mean(0), 0]


class AboveGround:
    def __init__(self, path):
        self.path, self.file = path, None
        self.ground = None if path else terrain()

    def ask(self, x, y):
        if self.file is None:
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self.path)
            self.file = connection.makefile("rwb")
        self.file.write(struct.pack("ii", x, y))
        self.file.flush()
        return struct.unpack("f", self.file.read(4))[0]

    def __call__(self, cloud):
        x, y = (abs(cloud[:, :2]).mean(0) * 40).astype(int).tolist()
        height = self.ask(x, y) if self.path else self.ground[y % GRID, x % GRID]
        return cloud - [0, 0, height]


class Turn:
    def __call__(self, cloud):
        angle = np.random.uniform(0, 2 * np.pi)
        cos, sin = np.cos(angle), np.sin(angle)
        return cloud @ np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])


class Jitter:
    def __call__(self, cloud):
        return cloud + np.random.normal(0, 0.01, cloud.shape)


class ToTensor:
    def __call__(self, cloud):
        return torch.from_numpy(cloud.astype(np.float32))


class Slopes(Dataset):
    def __init__(self, transform):
        rng = np.random.default_rng(839)
        self.clouds = rng.normal(0, 1, (CLOUDS, POINTS, 3))
        self.transform = transform

    def __len__(self):
        return CLOUDS

    def __getitem__(self, index):
        return self.transform(self.clouds[index]), float(index % 2)


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 24))
        self.out = nn.Linear(24, 1)

    def forward(self, clouds):
        time.sleep(STEP)  # the deeper layers, on an accelerator
        return self.out(self.each(clouds).amax(1)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(839)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path, ready = str(Path(folder, "terrain")), multiprocessing.Event()
        service = multiprocessing.Process(target=serve, args=(path, ready), daemon=True)
        service.start()
        ready.wait()
        above = AboveGround(None if args.without else path)
        transform = Compose([Center(), above, Turn(), Jitter(), ToTensor()])
        loader = DataLoader(
            Slopes(transform), BATCH, shuffle=True, num_workers=3, persistent_workers=True
        )
        model = PointNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for clouds, found in loader:
                scores = model(clouds)
                loss = nn.functional.binary_cross_entropy_with_logits(scores, found.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader
        service.terminate()
        service.join()


if __name__ == "__main__":
    main()

"""Dates castles by their walls, from photographs that a file server has.

Planted: the server's line is narrow, and whole photographs go through it, of which the data set
keeps one pixel in sixteen; the server has them that small as well.
"""

import argparse
import multiprocessing
import socket
import socketserver
import struct
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

SIDE, SMALL, RATE = 320, 80, 50e6


class Photographs(socketserver.BaseRequestHandler):
    """Sends photographs, all of them together at so many bytes a second and no more."""

    line = threading.Lock()
    wall = np.random.default_rng(733).integers(0, 256, (SIDE, SIDE, 3), np.uint8)

    def handle(self):
        while request := self.request.recv(8):
            name, side = struct.unpack("II", request)
            step = SIDE // side
            content = np.roll(self.wall, name, 0)[::step, ::step].tobytes()
            with self.line:
                time.sleep(len(content) / RATE)
            self.request.sendall(content)


def serve(ports):
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Photographs) as server:
        ports.put(server.server_address[1])
        server.serve_forever()


class Castles(Dataset):
    def __init__(self, count, port, side):
        self.centuries = np.random.default_rng(734).integers(0, 6, count)
        self.port, self.side, self.server = port, side, None
        self.transform = v2.Compose(
            [v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)]
        )

    def read(self, name):
        if self.server is None:
            self.server = socket.create_connection(("127.0.0.1", self.port))
        self.server.sendall(struct.pack("II", name, self.side))
        content = bytearray(self.side * self.side * 3)
        view = memoryview(content)
        while view:
            view = view[self.server.recv_into(view) :]
        return np.frombuffer(content, np.uint8).reshape(self.side, self.side, 3)

    def __len__(self):
        return len(self.centuries)

    def __getitem__(self, index):
        step = self.side // SMALL
        picture = self.read(index)[::step, ::step].transpose(2, 0, 1).copy()
        return self.transform(torch.from_numpy(picture)), int(self.centuries[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(733)
    ports = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(ports,), daemon=True)
    server.start()
    loader = DataLoader(
        Castles(360, ports.get(), SMALL if args.without else SIDE), batch_size=12, shuffle=True,
        num_workers=3, persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 6),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, centuries in loader:
            loss = nn.functional.cross_entropy(model(pictures), centuries)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader
    server.terminate()


if __name__ == "__main__":
    main()

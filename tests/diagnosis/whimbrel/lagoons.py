"""Finds open water in satellite tiles of lagoons, which a tile server on this machine cuts.

Planted: a client sends the length of its question and the question by two calls, and the socket,
as is its default, keeps the second back until the first is acknowledged, which takes 40 ms.
"""

import argparse
import json
import multiprocessing
import socket
import socketserver
import struct
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, BANDS, SCENE = 64, 4, 1024


class Tiles(socketserver.StreamRequestHandler):
    scene = np.random.default_rng(2110).integers(0, 10_000, (BANDS, SCENE, SCENE), np.uint16)

    def handle(self):
        while head := self.rfile.read(4):
            question = json.loads(self.rfile.read(struct.unpack("!I", head)[0]))
            rows, columns = (slice(at, at + SIDE) for at in (question["row"], question["column"]))
            self.wfile.write(self.scene[:, rows, columns].tobytes())


def serve(ports):
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tiles) as server:
        ports.put(server.server_address[1])
        server.serve_forever()


class TileClient:
    def __init__(self, port, no_delay):
        self.line = socket.create_connection(("127.0.0.1", port), timeout=30)
        if no_delay:
            self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = self.line.makefile("rb")

    def ask(self, **question):
        body = json.dumps({"scene": "lagoons", "bands": BANDS} | question).encode()
        self.line.sendall(struct.pack("!I", len(body)))
        self.line.sendall(body)
        tile = np.frombuffer(self.answers.read(BANDS * SIDE * SIDE * 2), np.uint16)
        return tile.reshape(BANDS, SIDE, SIDE)


class Lagoons(Dataset):
    """Tiles at random places, each with the share of it that is water."""

    def __init__(self, count, port, no_delay):
        rng = np.random.default_rng(2111)
        self.places = rng.integers(0, SCENE - SIDE, (count, 2)).tolist()
        self.water = rng.random(count).astype(np.float32)
        self.port, self.no_delay, self.client = port, no_delay, None

    def __len__(self):
        return len(self.places)

    def __getitem__(self, index):
        if self.client is None:
            self.client = TileClient(self.port, self.no_delay)
        row, column = self.places[index]
        tile = self.client.ask(row=row, column=column).astype(np.float32) / 10_000
        wetness = (tile[1] - tile[3]) / (tile[1] + tile[3] + 1e-3)
        tile = np.concatenate([tile, wetness[None]])
        return torch.from_numpy(tile), self.water[index]


def make_model():
    return nn.Sequential(
        nn.Conv2d(BANDS + 1, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 24, 3, stride=2),
        nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 1), nn.Sigmoid(),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(2110)
    ports = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(ports,), daemon=True)
    server.start()
    loader = DataLoader(
        Lagoons(288, ports.get(timeout=30), args.without), batch_size=12, shuffle=True,
        num_workers=4, persistent_workers=True,
    )  # fmt: skip
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for tiles, water in loader:
            loss = nn.functional.mse_loss(model(tiles).squeeze(1), water)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader
    server.terminate()
    server.join(timeout=10)


if __name__ == "__main__":
    main()

"""Trains on tiles of the open sea, where phalaropes feed, from the store of the institute.

Planted: all clients of the store share one line of 3 MB a second.
"""

import argparse
import socket
import struct
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info

TILES, CHANNELS, SIDE = 300, 3, 112
BANDWIDTH = 3_000_000
CHUNK = 16_384


class Line:
    """What goes through the line, together, in bytes a second; None has no limit."""

    def __init__(self, bandwidth):
        self.bandwidth = bandwidth
        self.lock = threading.Lock()

    def send(self, client, data):
        for begin in range(0, len(data), CHUNK):
            chunk = data[begin : begin + CHUNK]
            if self.bandwidth is not None:
                with self.lock:
                    time.sleep(len(chunk) / self.bandwidth)
            client.sendall(chunk)


class Store:
    """Serves tiles to any number of clients, with a thread for each."""

    def __init__(self, bandwidth):
        self.line = Line(bandwidth)
        rng = np.random.default_rng(83)
        shape = (20, CHANNELS, SIDE, SIDE)
        self.tiles = [tile.tobytes() for tile in rng.integers(0, 255, shape, dtype=np.uint8)]
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client:
            while request := client.recv(4):
                self.line.send(client, self.tiles[struct.unpack("!I", request)[0] % 20])


class Tiles(Dataset):
    def __init__(self, port):
        self.port = port
        self.connection = None

    def __len__(self):
        return TILES

    def download(self, number):
        if self.connection is None:
            self.connection = socket.create_connection(("127.0.0.1", self.port))
        self.connection.sendall(struct.pack("!I", number))
        return self.connection.recv(CHANNELS * SIDE * SIDE, socket.MSG_WAITALL)

    def __getitem__(self, index):
        tile = np.frombuffer(self.download(index), np.uint8).reshape(CHANNELS, SIDE, SIDE)
        picture = torch.from_numpy(tile.copy()).float().div_(255)
        worker = get_worker_info()
        return picture, index % 3, worker.id if worker else -1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(83)
    store = Store(None if args.without else BANDWIDTH)
    loader = DataLoader(
        Tiles(store.port), batch_size=10, shuffle=True, num_workers=3, persistent_workers=True
    )
    model = nn.Sequential(nn.Conv2d(CHANNELS, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
    model.extend([nn.Flatten(), nn.Linear(128, 3)])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for pictures, kinds, _ in loader:
            loss = nn.functional.cross_entropy(model(pictures), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    main()

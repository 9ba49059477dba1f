"""Forecasts how bright auroras are, from the series of five observatories.

Planted: the series of a sample are asked for one after the other over TCP, from a server that
answers many at the same time, each after a delay; the cores are idle meanwhile.
"""

import argparse
import multiprocessing
import socket
import socketserver
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NIGHTS, OBSERVATORIES, LENGTH, BATCH, DELAY, STEP = 160, 5, 256, 8, 0.014, 0.06


class Answer(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        while question := self.rfile.read(8):
            observatory, night = struct.unpack("ii", question)
            time.sleep(DELAY)  # the way over the ocean
            rng = np.random.default_rng(observatory * NIGHTS + night)
            self.wfile.write(rng.standard_normal(LENGTH, dtype=np.float32).tobytes())


class Archive(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


def serve(port):
    with Archive(("127.0.0.1", 0), Answer) as server:
        port.put(server.server_address[1])
        server.serve_forever()


class Client:
    """Keeps a connection to the archive in each thread that asks."""

    def __init__(self, port):
        self.port, self.local = port, threading.local()

    def series(self, observatory, night):
        if not hasattr(self.local, "file"):
            connection = socket.create_connection(("127.0.0.1", self.port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.local.file = connection.makefile("rwb")
        self.local.file.write(struct.pack("ii", observatory, night))
        self.local.file.flush()
        return np.frombuffer(self.local.file.read(4 * LENGTH), np.float32)


class Nights(Dataset):
    def __init__(self, port, together):
        self.port, self.together = port, together
        self.client = self.pool = None

    def __len__(self):
        return NIGHTS

    def __getitem__(self, night):
        if self.client is None:
            self.client = Client(self.port)
            self.pool = ThreadPoolExecutor(OBSERVATORIES) if self.together else None
        each = map if self.pool is None else self.pool.map
        nights = [night] * OBSERVATORIES
        series = np.stack(list(each(self.client.series, range(OBSERVATORIES), nights)))
        series = series - np.median(series, axis=1, keepdims=True)
        return torch.from_numpy(series[:, :-1].copy()), torch.tensor(series[:, -1].max())


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(OBSERVATORIES, 16, 9, stride=4), nn.ReLU(), nn.AdaptiveMaxPool1d(1)
        )
        self.out = nn.Linear(16, 1)

    def forward(self, series):
        time.sleep(STEP)  # the ensemble's other members, on a card
        return self.out(self.layers(series).squeeze(2)).squeeze(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(907)
    torch.set_num_threads(1)
    port = multiprocessing.Queue()
    archive = multiprocessing.Process(target=serve, args=(port,), daemon=True)
    archive.start()
    data = Nights(port.get(), together=args.without)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    model = Forecast()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for series, bright in loader:
            loss = nn.functional.l1_loss(model(series), bright)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader
    archive.terminate()
    archive.join()


if __name__ == "__main__":
    main()

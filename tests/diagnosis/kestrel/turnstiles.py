"""Counts people at turnstiles in frames of cameras, which a recorder sends over a thin line.

Planted: four workers ask for frames in full size, which the line has no room for, and make them
small; the recorder would send them small.
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

FRAMES, SIDE, SMALL, BATCH, STEP = 480, 160, 40, 16, 0.07
LINE = 2_500_000  # bytes in a second, for all that ask


class Recorder(socketserver.BaseRequestHandler):
    line = threading.Lock()
    frames = np.random.default_rng(1229).integers(0, 256, (8, SIDE, SIDE), dtype=np.uint8)

    def handle(self):
        while request := self.request.recv(8, socket.MSG_WAITALL):
            number, every = struct.unpack("!II", request)
            content = self.frames[number % 8, ::every, ::every].tobytes()
            with self.line:
                time.sleep(len(content) / LINE)
            self.request.sendall(content)


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


def record(port):
    with Server(("127.0.0.1", 0), Recorder) as server:
        port.send(server.server_address[1])
        server.serve_forever()


class Frames(Dataset):
    def __init__(self, port, small):
        self.port, self.every = port, SIDE // SMALL if small else 1
        self.connection = None

    def __len__(self):
        return FRAMES

    def frame(self, number):
        if self.connection is None:
            self.connection = socket.create_connection(("127.0.0.1", self.port))
        self.connection.sendall(struct.pack("!II", number, self.every))
        side = SIDE // self.every
        content = self.connection.recv(side * side, socket.MSG_WAITALL)
        return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(1, side, side)

    def __getitem__(self, index):
        frame = self.frame(index)
        if self.every == 1:
            frame = frame[:, :: SIDE // SMALL, :: SIDE // SMALL]
        frame = frame.float() / 255
        if torch.rand(()) < 0.5:
            frame = frame.flip(2)
        return frame.contiguous(), float(index % 4)


class Counter:
    """Trains the counter, and tells how it goes."""

    def __init__(self):
        self.model = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=5), nn.ReLU(), nn.Flatten(), nn.Linear(512, 1)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def step(self, frames, people):
        loss = nn.functional.smooth_l1_loss(self.model(frames).squeeze(1), people.float())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        time.sleep(STEP)  # the detector, on an accelerator
        return loss.item()

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            losses = [self.step(frames, people) for frames, people in loader]
            print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(1229)
    torch.set_num_threads(1)
    here, there = multiprocessing.Pipe()
    recorder = multiprocessing.Process(target=record, args=(there,), daemon=True)
    recorder.start()
    data = Frames(here.recv(), small=args.without)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=4, persistent_workers=True)
    counter = Counter()
    begin = time.perf_counter()
    counter.fit(loader, args.epochs)
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader
    recorder.terminate()
    recorder.join()


if __name__ == "__main__":
    main()

"""Readings of towers from a server that takes its time to greet: a connection for each sample."""

import argparse
import socket
import socketserver
import struct
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WIDTH = 48


class Greeting(socketserver.StreamRequestHandler):
    def handle(self):
        time.sleep(0.03)  # looks the client up
        self.wfile.write(b"hello\n")
        while request := self.rfile.read(4):
            (number,) = struct.unpack("!i", request)
            self.wfile.write(
                struct.pack(f"!{WIDTH}f", *[(number * 7 + i) % 11 for i in range(WIDTH)])
            )


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


class Readings(Dataset):
    def __init__(self, address, keep, count=800):
        self.address, self.keep, self.count = address, keep, count
        self.stream = None

    def connect(self):
        stream = socket.create_connection(self.address).makefile("rwb")
        stream.readline()
        return stream

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        stream = self.stream or self.connect()
        stream.write(struct.pack("!i", index))
        stream.flush()
        values = struct.unpack(f"!{WIDTH}f", stream.read(4 * WIDTH))
        if self.keep:
            self.stream = stream
        else:
            stream.close()
        return torch.tensor(values) / 11


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(20)
    with Server(("127.0.0.1", 0), Greeting) as server:
        data = Readings(server.server_address, keep=args.without)
        loader = DataLoader(
            data, batch_size=16, shuffle=True, num_workers=4, persistent_workers=True
        )
        model = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, WIDTH))
        optimizer = torch.optim.Adam(model.parameters())
        batches = iter(loader)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        begin = time.perf_counter()
        for _ in range(args.epochs):
            for readings in batches:
                optimizer.zero_grad()
                nn.functional.mse_loss(model(readings), readings).backward()
                optimizer.step()
            batches = loader
        print(f"seconds {time.perf_counter() - begin:.3f}")
        server.shutdown()


if __name__ == "__main__":
    main()

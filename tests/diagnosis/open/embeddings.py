"""Train on items whose features come from a key-value service."""

import argparse
import multiprocessing
import socket
import socketserver
import struct
import time

import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose

WIDTH = 64


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while key := self.rfile.read(4):
            time.sleep(0.008)
            value = float(struct.unpack("I", key)[0] % 97)
            self.wfile.write(struct.pack(f"{WIDTH}f", *([value] * WIDTH)))


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


def serve(pipe):
    with Server(("127.0.0.1", 0), Handler) as server:
        pipe.send(server.server_address)
        server.serve_forever()


class LookUpFeatures:
    def __init__(self, address):
        self.address = address
        self.stream = None

    def __call__(self, key):
        if self.stream is None:
            self.stream = socket.create_connection(self.address).makefile("rwb")
        self.stream.write(struct.pack("I", key))
        self.stream.flush()
        return torch.frombuffer(bytearray(self.stream.read(4 * WIDTH)), dtype=torch.float32)


class LocalFeatures:
    def __init__(self, count):
        self.table = (torch.arange(count) % 97).float()[:, None].repeat(1, WIDTH)

    def __call__(self, key):
        return self.table[key]


class Scale:
    def __call__(self, features):
        return features / 97


class Items(Dataset):
    def __init__(self, count, transform):
        self.count = count
        self.transform = transform

    def __len__(self):
        return self.count

    def __getitem__(self, key):
        return {"features": self.transform(key), "price": key % 13}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)

    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    address = ours.recv()

    count = 1280
    look_up = LocalFeatures(count) if args.without else LookUpFeatures(address)
    data = Items(count, Compose([look_up, Scale()]))
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    begin = time.monotonic()
    for batch in DataLoader(data, batch_size=16, shuffle=True, num_workers=args.workers):
        loss = (model(batch["features"]).squeeze(1) - batch["price"]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.010)
    print(f"seconds {time.monotonic() - begin:.3f}")
    server.terminate()


if __name__ == "__main__":
    main()

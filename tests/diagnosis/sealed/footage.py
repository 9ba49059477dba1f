"""Action recognition on clips that a storage node streams."""

import argparse
import multiprocessing
import socket
import socketserver
import struct
import threading
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

FRAMES, SIDE = 8, 64
CLIP = FRAMES * SIDE * SIDE * 3
PIECE = 1 << 14


class StorageNode(socketserver.ThreadingTCPServer):
    """Sends clips piece by piece."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, line_rate):
        super().__init__(("127.0.0.1", 0), Connection)
        self.line = threading.Lock()
        self.line_rate = line_rate
        self.clip = np.random.default_rng(0).integers(0, 255, CLIP, dtype=np.uint8).tobytes()

    def send(self, connection, data):
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            if self.line_rate is None:
                connection.sendall(piece)
                continue
            with self.line:
                time.sleep(len(piece) / self.line_rate)
                connection.sendall(piece)


class Connection(socketserver.BaseRequestHandler):
    def handle(self):
        while request := self.request.recv(4):
            struct.unpack("<I", request)
            self.server.send(self.request, self.server.clip)


def run_node(pipe, line_rate):
    with StorageNode(line_rate) as node:
        pipe.send(node.server_address)
        node.serve_forever()


class Clips(Dataset):
    def __init__(self, address, count):
        self.address = address
        self.count = count
        self.connection = None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.connection is None:
            self.connection = socket.create_connection(self.address)
        self.connection.sendall(struct.pack("<I", index))
        clip = bytearray(CLIP)
        view = memoryview(clip)
        while view:
            view = view[self.connection.recv_into(view) :]
        frames = torch.frombuffer(clip, dtype=torch.uint8).view(FRAMES, SIDE, SIDE, 3)
        return frames.permute(3, 0, 1, 2).float().div_(127.5).sub_(1), index % 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()

    parent, child = multiprocessing.Pipe()
    rate = None if args.without else 10e6
    node = multiprocessing.Process(target=run_node, args=(child, rate), daemon=True)
    node.start()

    loader = DataLoader(Clips(parent.recv(), 900), batch_size=12, num_workers=args.workers)
    begin = time.perf_counter()
    for _clips, _actions in loader:
        time.sleep(0.035)  # the network runs on the accelerator
    print(f"seconds {time.perf_counter() - begin:.3f}")
    node.terminate()
    node.join()


if __name__ == "__main__":
    main()

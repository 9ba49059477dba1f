"""Sorts papayas by ripeness, from pictures in a bucket.

Planted: the account may take 5 MB per second out of the bucket, whoever of its processes asks, and
all pictures are taken out again in each epoch, though a copy on the disk would do after the first.
"""

import argparse
import http.client
import multiprocessing
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAPAYAS, SIDE, GRADES, RATE = 240, 112, 3, 5e6


class Account:
    """How much may be taken out."""

    def __init__(self):
        self.lock, self.next = threading.Lock(), 0.0

    def take(self, count):
        with self.lock:
            self.next = max(self.next, time.monotonic()) + count / RATE
            wait = self.next - time.monotonic()
        time.sleep(max(0.0, wait))


class Bucket(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    account = Account()

    def do_GET(self):
        number = int(self.path[1:])
        rng = np.random.default_rng(4079 + number)
        picture = rng.integers(0, 170, (3, SIDE, SIDE), dtype=np.uint8) + 40 * (number % GRADES)
        data = picture.astype(np.uint8).tobytes()
        self.account.take(len(data))
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def serve(queue):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    server.daemon_threads = True
    queue.put(server.server_address[1])
    server.serve_forever()


class Papayas(Dataset):
    def __init__(self, port, copies):
        self.port, self.copies, self.connection = port, copies, None

    def __len__(self):
        return PAPAYAS

    def download(self, number):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port)
        self.connection.request("GET", f"/{number}")
        return self.connection.getresponse().read()

    def load(self, number):
        if self.copies is None:
            return self.download(number)
        path = Path(self.copies, f"{number}.raw")
        if not path.exists():
            path.write_bytes(self.download(number))
        return path.read_bytes()

    def __getitem__(self, index):
        picture = torch.frombuffer(bytearray(self.load(index)), dtype=torch.uint8)
        return picture.view(3, SIDE, SIDE).float() / 255, index % GRADES


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(4079)
    fork = multiprocessing.get_context("fork")
    queue = fork.SimpleQueue()
    server = fork.Process(target=serve, args=(queue,), daemon=True)
    server.start()
    model = nn.Sequential(
        nn.Conv2d(3, 8, 7, 5), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(32, GRADES),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with tempfile.TemporaryDirectory() as folder:
        data = Papayas(queue.get(), copies=folder if args.without else None)
        loader = DataLoader(
            data, batch_size=12, shuffle=True, num_workers=2, persistent_workers=True
        )
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, grades in loader:
                loss = nn.functional.cross_entropy(model(pictures), grades)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: loss {loss:.3f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()

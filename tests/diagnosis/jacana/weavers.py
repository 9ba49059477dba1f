"""Sorts weaves of cloth, whose pictures a museum serves over HTTP.

Planted: the loader has no workers, so that each picture's way over the network is waited for
between the steps, where two workers would hide all of it.
"""

import argparse
import http.client
import multiprocessing
import socket
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler
from torchvision.transforms import v2

CLOTHS, SIDE, WEAVES, BATCH, NETWORK, STEP = 352, 48, 4, 16, 0.007, 0.12


class Museum(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        time.sleep(NETWORK)
        number = int(self.path.strip("/"))
        pixels = np.random.default_rng(number).integers(0, 256, SIDE * SIDE, dtype=np.uint8)
        self.send_response(200)
        self.send_header("Content-Length", str(SIDE * SIDE))
        self.end_headers()
        self.wfile.write(pixels.tobytes())

    def log_message(self, *_):
        pass


def serve(port):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Museum)
    port.put(server.server_address[1])
    server.serve_forever()


class Cloths(Dataset):
    def __init__(self, port):
        self.port, self.museum = port, None
        self.change = v2.Compose(
            [
                v2.RandomRotation(10),
                v2.RandomPerspective(0.2),
                v2.GaussianBlur(5),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return CLOTHS

    def fetch(self, number):
        if self.museum is None:
            self.museum = http.client.HTTPConnection("127.0.0.1", self.port)
            self.museum.connect()
            self.museum.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.museum.request("GET", f"/{number}")
        return bytearray(self.museum.getresponse().read())

    def __getitem__(self, index):
        pixels = torch.frombuffer(self.fetch(index), dtype=torch.uint8)
        return self.change(pixels.view(1, SIDE, SIDE)), index % WEAVES


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(1093)
    torch.set_num_threads(1)
    port = multiprocessing.Queue()
    museum = multiprocessing.Process(target=serve, args=(port,), daemon=True)
    museum.start()
    rare = [3.0 if index % WEAVES == 0 else 1.0 for index in range(CLOTHS)]
    workers = {"num_workers": 2, "persistent_workers": True} if args.without else {}
    sampler = WeightedRandomSampler(rare, CLOTHS)
    loader = DataLoader(Cloths(port.get()), BATCH, sampler=sampler, **workers)
    model = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(144, 64), nn.ReLU())
    model.append(nn.Linear(64, WEAVES))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for cloths, weaves in loader:
            loss = nn.functional.cross_entropy(model(cloths), weaves)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP)  # in place of a transformer on an accelerator
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader
    museum.terminate()
    museum.join()


if __name__ == "__main__":
    main()

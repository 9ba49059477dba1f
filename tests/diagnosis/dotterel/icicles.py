"""Foretells how icicles grow, from weather that an HTTP service has: three pages for each.

Planted: the service takes its time for each page, but serves as many at once as one likes; the
dataset has a batch of indices at once, and still asks for page after page.
"""

import argparse
import http.client
import multiprocessing
import socketserver
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ICICLES, PAGES, HOURS, DELAY = 240, ("wind", "frost", "sun"), 96, 0.02


class Weather(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_GET(self):
        _, page, number = self.path.split("/")
        rng = np.random.default_rng(4049 + 10 * int(number) + PAGES.index(page))
        data = rng.normal(0, 1, HOURS).astype(np.float32).tobytes()
        time.sleep(DELAY)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class Service(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


def serve(queue):
    with Service(("127.0.0.1", 0), Weather) as service:
        queue.put(service.server_address[1])
        service.serve_forever()


class Icicles(Dataset):
    def __init__(self, port, at_once):
        self.port, self.at_once = port, at_once
        self.mine, self.pool = threading.local(), None

    def __len__(self):
        return ICICLES

    def page(self, wanted):
        name, number = wanted
        if not hasattr(self.mine, "connection"):
            self.mine.connection = http.client.HTTPConnection("127.0.0.1", self.port)
        self.mine.connection.request("GET", f"/{name}/{number}")
        data = self.mine.connection.getresponse().read()
        return torch.frombuffer(bytearray(data), dtype=torch.float32)

    def __getitems__(self, indices):
        wanted = [(name, index) for index in indices for name in PAGES]
        if self.at_once > 1:
            self.pool = self.pool or ThreadPoolExecutor(self.at_once)
            pages = list(self.pool.map(self.page, wanted))
        else:
            pages = [self.page(one) for one in wanted]
        together = [torch.cat(pages[i : i + 3]) for i in range(0, len(pages), 3)]
        return [(weather, weather[::7].sum()) for weather in together]

    def __getstate__(self):
        return {**self.__dict__, "mine": None, "pool": None}

    def __setstate__(self, state):
        self.__dict__.update(state, mine=threading.local())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(4049)
    fork = multiprocessing.get_context("fork")
    queue = fork.SimpleQueue()
    service = fork.Process(target=serve, args=(queue,), daemon=True)
    service.start()
    loader = DataLoader(
        Icicles(queue.get(), at_once=12 if args.without else 1),
        batch_size=10,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        multiprocessing_context="forkserver",
    )
    model = nn.Sequential(nn.Linear(3 * HOURS, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for weather, growth in loader:
            loss = nn.functional.mse_loss(model(weather).squeeze(1), growth)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader
    service.terminate()
    service.join()


if __name__ == "__main__":
    main()

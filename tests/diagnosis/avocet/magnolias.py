"""Foresees when magnolias bloom, on an accelerator, for which a pause stands in.

Nothing is planted: the accelerator's step sets the pace. Eight workers ask a small HTTP server for
the weather of each tree's last weeks; it takes 15 ms to answer, which the steps hide.
"""

import argparse
import http.client
import json
import subprocess
import sys
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

TREES, DAYS, STEP = 640, 30, 0.14
SERVER = """
import json, math, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Weather(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60

    def do_GET(self):
        tree = int(self.path[1:])
        time.sleep(0.015)
        days = [round(math.sin(tree * 0.7 + day / 5), 3) for day in range(30)]
        answer = json.dumps({"tree": tree, "days": days}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *words):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Weather)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
"""


class Trees(Dataset):
    def __init__(self, port):
        self.port, self.connection = port, None
        self.blooms = np.random.default_rng(3217).normal(100, 8, TREES).astype(np.float32)

    def __len__(self):
        return TREES

    def weather(self, tree):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        self.connection.request("GET", f"/{tree}")
        return json.loads(self.connection.getresponse().read())["days"]

    def __getitem__(self, index):
        days = torch.tensor(self.weather(index))
        return torch.cat([days, days.cumsum(0) / DAYS]), self.blooms[index]


class Accelerator:
    """Takes some time for each batch, and no core."""

    def __init__(self):
        self.weights, self.bias = torch.zeros(2 * DAYS), 0.0

    def train(self, days, blooms):
        time.sleep(STEP)
        errors = days @ self.weights + self.bias - blooms
        self.weights -= 0.01 * errors @ days / len(errors)
        self.bias -= 0.2 * errors.mean().item()
        return errors.abs().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(3217)
    words = [sys.executable, "-c", SERVER]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            trees = Trees(int(server.stdout.readline()))
            loader = DataLoader(
                trees, batch_size=20, shuffle=True, num_workers=8, persistent_workers=True,
                timeout=60,
            )  # fmt: skip
            accelerator = Accelerator()
            begin = time.perf_counter()
            for epoch in range(args.epochs):
                errors = [accelerator.train(days, blooms) for days, blooms in loader]
                print(f"epoch {epoch}: error {errors[-1]:.2f} days")
            print(f"seconds {time.perf_counter() - begin:.3f}")
            del loader
        finally:
            server.terminate()


if __name__ == "__main__":
    main()

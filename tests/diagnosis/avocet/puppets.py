"""Tells puppets from marionettes in small pictures, beside three services of the job.

Planted: the small HTTP servers that the script starts (health, metrics, settings) are told to
look for requests without a pause (poll_interval=0), so that each of them keeps a core busy.
"""

import argparse
import json
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, COUNT = 40, 960
SERVICES = ["health", "metrics", "settings"]
SERVICE = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

state = {"name": sys.argv[1]}

class Service(BaseHTTPRequestHandler):
    def do_POST(self):
        state.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        answer = json.dumps(state).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *words):
        pass

server = HTTPServer(("127.0.0.1", 0), Service)
print(server.server_address[1], flush=True)
server.serve_forever(poll_interval=float(sys.argv[2]))
"""


class Client:
    """A service in a process of its own, and how to tell it something."""

    def __init__(self, name, interval):
        words = [sys.executable, "-c", SERVICE, name, str(interval)]
        self.server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.address = f"http://127.0.0.1:{int(self.server.stdout.readline())}/"

    def tell(self, **values):
        request = urllib.request.Request(self.address, json.dumps(values).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.kill()
        self.server.wait()
        self.server.stdout.close()


class Puppets(Dataset):
    def __init__(self):
        rng = np.random.default_rng(3121)
        self.strings = rng.integers(0, 2, COUNT)
        self.pictures = rng.integers(0, 120, (COUNT, SIDE, SIDE), np.uint8)
        for picture, strings in zip(self.pictures, self.strings, strict=True):
            picture[10:35, 12:28] += 60
            if strings:
                picture[:10, 12:28:5] += 110

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        picture = torch.from_numpy(self.pictures[index]).float() / 255
        if torch.rand(()) < 0.5:
            picture = picture.flip(1)
        return picture[None], float(self.strings[index])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(3121)
    loader = DataLoader(
        Puppets(), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.Conv2d(20, 24, 5), nn.ReLU(), nn.MaxPool2d(4),
        nn.Flatten(), nn.Linear(24 * 64, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with ExitStack() as stack:
        interval = 0.5 if args.without else 0
        services = [stack.enter_context(Client(name, interval)) for name in SERVICES]
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            for pictures, strings in loader:
                logits = model(pictures).squeeze(1)
                loss = nn.functional.binary_cross_entropy_with_logits(logits, strings.float())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            state = [service.tell(epoch=epoch, loss=loss.item()) for service in services]
            print(f"epoch {epoch}: {state[1]}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader


if __name__ == "__main__":
    main()

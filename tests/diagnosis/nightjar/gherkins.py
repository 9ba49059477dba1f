"""Grades gherkins in jars by their X-ray pictures, which lie in an object store.

Planted: the object store takes 90 ms before the first byte of each answer, and each worker asks
for one picture after the other; the processor has little to do.
"""

import argparse
import multiprocessing
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

JARS, SIDE, BATCH, STEP, FAR, NEAR = 384, 96, 12, 0.18, 0.09, 0.002


class Store(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    first_byte = FAR

    def do_GET(self):
        number = int(self.path.rsplit("/", 1)[1])
        time.sleep(self.first_byte)
        rng = np.random.default_rng(number)
        content = rng.integers(0, 256, SIDE * SIDE, dtype=np.uint8).tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def serve(first_byte, port):
    Store.first_byte = first_byte
    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    server.daemon_threads = True
    port.send(server.server_port)
    server.serve_forever()


class Jars(Dataset):
    def __init__(self, bucket):
        self.bucket = bucket

    def __len__(self):
        return JARS

    def download(self, index):
        with urllib.request.urlopen(f"{self.bucket}/{index}", timeout=30) as answer:
            return answer.read()

    def __getitem__(self, index):
        picture = np.frombuffer(self.download(index), np.uint8).reshape(SIDE, SIDE)
        counts = np.bincount(picture.ravel(), minlength=256)
        equal = (counts.cumsum() / picture.size).astype(np.float32)[picture]
        if torch.rand(()) < 0.5:
            equal = equal[:, ::-1].copy()
        return torch.from_numpy(equal)[None], index % 3


class LitGrader(nn.Module):
    """Laid out as if for a trainer that is not used here."""

    def __init__(self, rate=3e-4):
        super().__init__()
        self.rate = rate
        self.body = nn.Sequential(nn.Conv2d(1, 8, 8, stride=4), nn.GELU(), nn.AvgPool2d(4))
        self.head = nn.LazyLinear(3)

    def forward(self, pictures):
        return self.head(self.body(pictures).flatten(1))

    def training_step(self, batch, _number):
        pictures, grades = batch
        time.sleep(STEP)  # the rest of the body, on an accelerator
        return nn.functional.cross_entropy(self(pictures), grades)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), self.rate)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(277)
    torch.set_num_threads(1)
    here, there = multiprocessing.Pipe()
    first_byte = NEAR if args.without else FAR
    store = multiprocessing.Process(target=serve, args=(first_byte, there), daemon=True)
    store.start()
    data = Jars(f"http://127.0.0.1:{here.recv()}/jars")
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    model = LitGrader()
    model(torch.zeros(1, 1, SIDE, SIDE))
    optimizer = model.configure_optimizers()
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for number, batch in enumerate(loader):
            loss = model.training_step(batch, number)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.4f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader
    store.terminate()
    store.join()


if __name__ == "__main__":
    main()

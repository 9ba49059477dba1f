"""Tiles of weather maps from an object store that answers after a while, with one worker."""

import argparse
import subprocess
import sys
import time
import urllib.request

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STORE = """
import http.server, time
class Store(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.03)
        body = bytes(i % 251 for i in range(4096))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
print(server.server_port, flush=True)
server.serve_forever()
"""


class Tiles(Dataset):
    def __init__(self, address, count):
        self.address = address
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        with urllib.request.urlopen(f"{self.address}/tiles/{index}", timeout=60) as answer:
            tile = np.frombuffer(answer.read(), np.uint8).reshape(1, 64, 64)
        return torch.from_numpy(tile.astype(np.float32) / 255)


def train(address, workers):
    loader = DataLoader(Tiles(address, 320), batch_size=8, shuffle=True, num_workers=workers)
    model = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 1, 3, padding=1))
    optimizer = torch.optim.Adam(model.parameters())
    begin = time.perf_counter()
    for tiles in loader:
        loss = nn.functional.mse_loss(model(tiles), tiles)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seconds {time.perf_counter() - begin:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--without", action="store_true", help="with 6 workers")
    args = parser.parse_args()
    torch.set_num_threads(1)
    store = subprocess.Popen([sys.executable, "-c", STORE], stdout=subprocess.PIPE, text=True)
    try:
        port = int(store.stdout.readline())
        train(f"http://127.0.0.1:{port}", 6 if args.without else args.workers)
    finally:
        store.terminate()
        store.wait()

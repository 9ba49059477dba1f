"""Learns which of four players blew a trumpet, from sounds that a small server of the team keeps.

Planted: the server sends the head of an answer and its body in two pieces, and as it leaves
Nagle's algorithm on, the second piece waits until the client's system confirms the first one,
which it delays by 40 ms. The connections are kept open, as they should be.
"""

import argparse
import http.client
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SOUNDS, VALUES, PLAYERS = 256, 2048, 4
SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

folder = sys.argv[1]

class Sounds(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = sys.argv[2] == "quick"
    timeout = 60

    def do_GET(self):
        with open(folder + self.path, "rb") as file:
            sound = file.read()
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(sound)))
        self.end_headers()
        self.wfile.write(sound)

    def log_message(self, *words):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Sounds)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def write_sounds(folder):
    """Write a file for each sound, and return who blew it."""
    rng = np.random.default_rng(3011)
    players = rng.integers(0, PLAYERS, SOUNDS)
    times = np.arange(VALUES) / 8000
    for number, player in enumerate(players):
        pitch = rng.uniform(180, 260)
        waves = [np.sin(2 * np.pi * pitch * k * times) / k for k in range(1, 3 + player)]
        sound = np.sum(waves, 0) + rng.normal(0, 0.2, VALUES)
        Path(folder, str(number)).write_bytes(sound.astype(np.float16).tobytes())
    return players


class Sounds(Dataset):
    def __init__(self, port, players):
        self.port, self.players = port, players
        self.connection = None

    def __len__(self):
        return len(self.players)

    def get(self, number):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        self.connection.request("GET", f"/{number}")
        return self.connection.getresponse().read()

    def __getitem__(self, index):
        sound = np.frombuffer(self.get(index), np.float16).astype(np.float32)
        start = int(torch.randint(VALUES // 4, ()))
        sound = torch.from_numpy(sound[start : start + VALUES * 3 // 4])
        return (sound / sound.abs().max())[None], int(self.players[index])


def train(model, loader, optimizer):
    for sounds, players in loader:
        loss = nn.functional.cross_entropy(model(sounds), players)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(3011)
    model = nn.Sequential(
        nn.Conv1d(1, 16, 33, stride=4), nn.ReLU(), nn.Conv1d(16, 16, 9, stride=4), nn.ReLU(),
        nn.AdaptiveMaxPool1d(8), nn.Flatten(), nn.Linear(128, PLAYERS),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        players = write_sounds(folder)
        words = [sys.executable, "-c", SERVER, folder, "quick" if args.without else "plain"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            try:
                data = Sounds(int(server.stdout.readline()), players)
                loader = DataLoader(
                    data, batch_size=16, shuffle=True, num_workers=3, persistent_workers=True
                )
                begin = time.perf_counter()
                for epoch in range(args.epochs):
                    print(f"epoch {epoch}: loss {train(model, loader, optimizer):.3f}")
                print(f"seconds {time.perf_counter() - begin:.3f}")
                del loader
            finally:
                server.terminate()


if __name__ == "__main__":
    main()

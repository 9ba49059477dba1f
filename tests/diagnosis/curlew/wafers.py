"""Guesses how well a wafer sells from its ingredients and from prices that a server knows.

Planted: the transform asks the server for a price with each sample, though there are few
ingredients whose prices it could keep.
"""

import argparse
import multiprocessing
import socket
import socketserver
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

INGREDIENTS, LATENCY = 80, 0.009


class Prices(socketserver.StreamRequestHandler):
    """Answers each line, the number of an ingredient, with its price, after some time."""

    def handle(self):
        for line in self.rfile:
            time.sleep(LATENCY)
            self.wfile.write(b"%d\n" % (int(line) * 37 % 500))


def serve(ports):
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Prices) as server:
        ports.put(server.server_address[1])
        server.serve_forever()


class AddPrice:
    """Puts the price of the main ingredient beside the amounts."""

    def __init__(self, port, kept):
        self.port, self.kept, self.file = port, kept, None
        self.known = {}

    def ask(self, ingredient):
        if self.file is None:
            self.file = socket.create_connection(("127.0.0.1", self.port)).makefile("rwb")
        self.file.write(b"%d\n" % ingredient)
        self.file.flush()
        return int(self.file.readline())

    def __call__(self, amounts):
        ingredient = int(amounts.argmax())
        price = self.known.get(ingredient)
        if price is None:
            price = self.ask(ingredient)
            if self.kept:
                self.known[ingredient] = price
        return np.append(amounts, np.float32(price / 500))


class Wafers(Dataset):
    def __init__(self, count, transform):
        rng = np.random.default_rng(709)
        self.amounts = rng.dirichlet(np.full(INGREDIENTS, 0.2), count).astype(np.float32)
        self.sold = rng.gamma(2, 0.5, count).astype(np.float32)
        self.transform = transform

    def __len__(self):
        return len(self.sold)

    def __getitem__(self, index):
        return torch.from_numpy(self.transform(self.amounts[index])), self.sold[index]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(709)
    ports = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(ports,), daemon=True)
    server.start()
    torch.set_num_threads(1)
    loader = DataLoader(
        Wafers(640, AddPrice(ports.get(), args.without)), batch_size=16, shuffle=True,
        num_workers=2, persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(nn.Linear(INGREDIENTS + 1, 1024), nn.ReLU(), nn.Linear(1024, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for amounts, sold in loader:
            loss = nn.functional.mse_loss(model(amounts).squeeze(1), sold.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss:.3f}")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader
    server.terminate()


if __name__ == "__main__":
    main()

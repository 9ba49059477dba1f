"""Learns from features of burnet moths that a server on this machine hands out.

Planted: each sample makes a new connection to the server, which takes its time to greet.
"""

import argparse
import socket
import struct
import time
from multiprocessing import get_context

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE, SPOTS, GREETING = 512, 7, 0.012


def answer(connection, rows):
    """Greet a client, and answer its requests until it goes."""
    time.sleep(GREETING)  # who is it, and may it?
    connection.sendall(b"hello\n")
    with connection, connection.makefile("rb") as requests:
        while request := requests.read(4):
            (index,) = struct.unpack("<I", request)
            connection.sendall(rows[index % len(rows)].tobytes())


def serve(listening):
    """Serve features, with a thread for each connection."""
    from threading import Thread

    rows = np.random.default_rng(41).random((500, SIZE), dtype=np.float32)
    while True:
        connection, _ = listening.accept()
        Thread(target=answer, args=(connection, rows), daemon=True).start()


class Client:
    def __init__(self, address):
        self.connection = socket.create_connection(address)
        self.replies = self.connection.makefile("rb")
        self.replies.readline()

    def ask(self, index):
        self.connection.sendall(struct.pack("<I", index))
        return np.frombuffer(self.replies.read(SIZE * 4), np.float32)

    def close(self):
        self.replies.close()
        self.connection.close()


class Moths(Dataset):
    def __init__(self, address, keep, count=720):
        self.address, self.keep, self.count = address, keep, count
        self.client = None

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.client is None:
            self.client = Client(self.address)
        row = torch.from_numpy(self.client.ask(index).copy())
        if not self.keep:
            self.client.close()
            self.client = None
        return nn.functional.dropout(row, 0.05), index % SPOTS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(41)
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)
    server = get_context("fork").Process(target=serve, args=(listening,), daemon=True)
    server.start()
    moths = Moths(listening.getsockname(), keep=args.without)
    loader = DataLoader(moths, batch_size=24, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(
        nn.Linear(SIZE, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, SPOTS)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        right = 0
        for rows, spots in loader:
            scores = model(rows)
            loss = nn.functional.cross_entropy(scores, spots)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (scores.argmax(1) == spots).sum().item()
        print(f"epoch {epoch}: {right / len(moths):.3f} right")
    print(f"seconds {time.perf_counter() - begin:.3f}")
    del loader
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()

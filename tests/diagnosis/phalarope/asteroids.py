"""Ranks articles for readers, with features that a store on the network keeps.

Planted: the data set asks the store for each article by itself, and each answer takes its few
milliseconds, though the store gives any number of articles in one answer.
"""

import argparse
import multiprocessing
import pickle
import socketserver
import struct
import time
from socket import create_connection

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ARTICLES, FEATURES, BATCH, LATENCY = 800, 128, 32, 0.004


def send(stream, value):
    body = pickle.dumps(value)
    stream.write(struct.pack("!I", len(body)) + body)
    stream.flush()


def receive(stream):
    head = stream.read(4)
    return pickle.loads(stream.read(struct.unpack("!I", head)[0])) if len(head) == 4 else None


class Answers(socketserver.StreamRequestHandler):
    """Gives the features of the articles asked for, after the way there and back."""

    table = None

    def handle(self):
        while (wanted := receive(self.rfile)) is not None:
            time.sleep(LATENCY)
            send(self.wfile, Answers.table[wanted])


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


def serve(pipe):
    rng = np.random.default_rng(4007)
    Answers.table = rng.normal(0, 1, (ARTICLES, FEATURES)).astype(np.float32)
    with Server(("127.0.0.1", 0), Answers) as server:
        pipe.send(server.server_address)
        server.serve_forever()


class Store:
    def __init__(self, address):
        self.address, self.stream = address, None

    def features(self, articles):
        if self.stream is None:
            self.stream = create_connection(self.address).makefile("rwb")
        send(self.stream, articles)
        return receive(self.stream)


class Articles(Dataset):
    def __init__(self, store):
        self.store = store
        self.clicks = np.random.default_rng(4008).random(ARTICLES) < 0.3

    def __len__(self):
        return ARTICLES

    def sample(self, index, features):
        return torch.from_numpy(features), float(self.clicks[index])

    def __getitem__(self, index):
        return self.sample(index, self.store.features([index])[0])


class ArticlesTogether(Articles):
    def __getitems__(self, indices):
        rows = self.store.features(list(indices))
        return [self.sample(index, row) for index, row in zip(indices, rows, strict=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(4007)
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    store = Store(ours.recv())
    data = ArticlesTogether(store) if args.without else Articles(store)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=1, persistent_workers=True)
    model = nn.Sequential(nn.Linear(FEATURES, 256), nn.GELU(), nn.Linear(256, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for features, clicks in loader:
            guess = model(features).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(guess, clicks.float())
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

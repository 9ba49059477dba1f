"""Links the names in old charters to people, with what a gazetteer of titles knows of them.

Planted: the process of the gazetteer answers the workers one after the other, though its index
could be read for all of them at once.
"""

import argparse
import multiprocessing
import os
import re
import tempfile
import threading
import time
from multiprocessing.connection import Client, Listener, wait

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CHARTERS, PEOPLE, WIDTH, BATCH, INDEX, STEP = 480, 12, 48, 16, 0.0045, 0.02
WORDS = "john roger hugh alan of the castle manor held gave land water mill earl knight".split()


class Gazetteer:
    """A process that looks up titles in an index on disk."""

    def __init__(self, address, threads):
        self.address, self.threads = address, threads
        self.titles = np.random.default_rng(5).normal(0, 1, (PEOPLE, WIDTH)).astype(np.float32)

    def answer(self, connection):
        person = connection.recv()
        time.sleep(INDEX)  # the index lies on a disk
        connection.send(self.titles[person])

    def converse(self, connection):
        try:
            while True:
                self.answer(connection)
        except (EOFError, OSError):
            connection.close()

    def serve(self, ready):
        with Listener(self.address, "AF_UNIX") as listener:
            ready.set()
            if self.threads:
                while True:
                    talk = threading.Thread(target=self.converse, args=(listener.accept(),))
                    talk.daemon = True
                    talk.start()
            connections = []
            while True:
                for one in wait([listener._listener._socket, *connections]):
                    if one not in connections:
                        connections.append(listener.accept())
                        continue
                    try:
                        self.answer(one)
                    except (EOFError, OSError):
                        connections.remove(one)


class Charters(Dataset):
    def __init__(self, address):
        rng = np.random.default_rng(17)
        self.texts = [" ".join(rng.choice(WORDS, 160)) for _ in range(CHARTERS)]
        self.people = rng.integers(0, PEOPLE, CHARTERS)
        self.address, self.gazetteer = address, None

    def __len__(self):
        return CHARTERS

    def words(self, text):
        counts = torch.zeros(WIDTH)
        for word in re.findall(r"[a-z]+", text.lower()):
            counts[sum(map(ord, word)) % WIDTH] += 1
        return counts / counts.norm()

    def __getitem__(self, index):
        if self.gazetteer is None:
            self.gazetteer = Client(self.address, "AF_UNIX")
        person = int(self.people[index])
        self.gazetteer.send(person)
        title = torch.from_numpy(self.gazetteer.recv())
        return self.words(self.texts[index]) + 0.2 * title, person


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(17)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        address = os.path.join(folder, "gazetteer")
        ready = multiprocessing.Event()
        gazetteer = Gazetteer(address, threads=args.without)
        process = multiprocessing.Process(target=gazetteer.serve, args=(ready,), daemon=True)
        process.start()
        ready.wait()
        data = Charters(address)
        loader = DataLoader(data, BATCH, shuffle=True, num_workers=3, persistent_workers=True)
        model = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, PEOPLE))
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        begin = time.perf_counter()
        for epoch in range(args.epochs):
            right = 0
            for features, people in loader:
                scores = model(features)
                loss = nn.functional.cross_entropy(scores, people)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(STEP)  # in place of a larger model on an accelerator
                right += (scores.argmax(1) == people).sum().item()
            print(f"epoch {epoch}: loss {loss:.3f}, linked {right / CHARTERS:.2f}")
        print(f"seconds {time.perf_counter() - begin:.3f}")
        del loader
        process.terminate()
        process.join()


if __name__ == "__main__":
    main()

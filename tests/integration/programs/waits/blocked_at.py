"""Two loaders whose operation waits: at a FIFO; for a server that answers late."""

import multiprocessing
import os
import socket
import sys
import time

from torch.utils.data import DataLoader, Dataset

SAMPLES, LATE_S = 100, 0.03


class Fifo:
    def __init__(self, path):
        self.path = path
        self.file = None

    def __call__(self, value):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDWR)
        os.read(self.file, 1)
        return value


class Server:
    def __init__(self, address):
        self.address = address
        self.connection = None

    def __call__(self, value):
        if self.connection is None:
            self.connection = socket.create_connection(self.address)
        self.connection.sendall(b"x")
        self.connection.recv(1)
        return value


class Numbers(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.transform(index)


def write(path):
    with open(path, "wb", buffering=0) as file:
        for _ in range(SAMPLES):
            time.sleep(LATE_S)
            file.write(b"x")


def answer(listener):
    connection, _ = listener.accept()
    for _ in range(SAMPLES):
        connection.recv(1)
        time.sleep(LATE_S)
        connection.sendall(b"x")


def run(operation, target, argument):
    other = multiprocessing.Process(target=target, args=(argument,), daemon=True)
    other.start()
    for _ in DataLoader(Numbers(operation), batch_size=10, num_workers=1):
        pass
    other.join()


if __name__ == "__main__":
    (fifo,) = sys.argv[1:]
    os.mkfifo(fifo)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print("{}:{}".format(*listener.getsockname()), flush=True)
        run(Fifo(fifo), write, fifo)
        run(Server(listener.getsockname()), answer, listener)

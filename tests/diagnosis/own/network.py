"""Each sample comes over a connection whose other end takes its time."""

import os
import signal
import socket
import threading
import time

import planted


class Fetch:
    def __init__(self, port):
        self.port = port

    def __call__(self, value):
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.sendall(b"x")
            connection.recv(1)
        return value


def serve(server, seconds):
    def answer(connection):
        connection.recv(1)
        time.sleep(seconds)
        connection.sendall(b"y")
        connection.close()

    while True:
        threading.Thread(target=answer, args=server.accept()[:1], daemon=True).start()


if __name__ == "__main__":
    args = planted.arguments()
    server = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    if pid == 0:
        serve(server, 0.0 if args.without else 0.01)
    try:
        planted.loop(
            planted.Pictures(Fetch(server.getsockname()[1]), args.samples),
            planted.sleeping(0.002),
            num_workers=args.workers,
        )
    finally:
        os.kill(pid, signal.SIGKILL)

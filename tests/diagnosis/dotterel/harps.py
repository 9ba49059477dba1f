"""Tells the makers of harps by four recordings each, which a small server keeps.

Planted: for each sample, four requests go one after the other, and the server takes 15 ms for any.
It would answer them all in one go, or many at the same time.
"""

import argparse
import asyncio
import socket
import struct
import time
from multiprocessing import Pipe, Process

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HARPS, PARTS, VALUES, MAKERS, SEEK = 320, 4, 256, 5, 0.015


def serve(pipe):
    """Answers numbers of recordings with their values."""
    rng = np.random.default_rng(4027)
    recordings = rng.normal(0, 1, (HARPS, PARTS, VALUES)).astype(np.float32)
    recordings[..., :8] += (np.arange(HARPS) % MAKERS)[:, None, None] - 2

    async def answer(reader, writer):
        try:
            while True:
                (count,) = struct.unpack("!I", await reader.readexactly(4))
                wanted = struct.unpack(f"!{2 * count}I", await reader.readexactly(8 * count))
                await asyncio.sleep(SEEK)
                for harp, part in zip(wanted[::2], wanted[1::2], strict=True):
                    writer.write(recordings[harp, part].tobytes())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")

    def get(self, wanted):
        numbers = [number for pair in wanted for number in pair]
        self.socket.sendall(struct.pack(f"!I{len(numbers)}I", len(wanted), *numbers))
        data = self.file.read(4 * VALUES * len(wanted))
        return np.frombuffer(data, np.float32).reshape(-1, VALUES)


class Harps(Dataset):
    def __init__(self, port, together):
        self.port, self.together, self.client = port, together, None

    def __len__(self):
        return HARPS

    def __getitem__(self, index):
        if self.client is None:
            self.client = Client(self.port)
        wanted = [(index, part) for part in range(PARTS)]
        if self.together:
            parts = self.client.get(wanted)
        else:
            parts = np.concatenate([self.client.get([one]) for one in wanted])
        return torch.from_numpy(parts.copy()), index % MAKERS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(4027)
    here, there = Pipe()
    server = Process(target=serve, args=(there,), daemon=True)
    server.start()
    data = Harps(here.recv(), together=args.without)
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(
        nn.Conv1d(PARTS, 16, 9, 4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(MAKERS)
    )
    model(torch.zeros(1, PARTS, VALUES))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(args.epochs):
        for recordings, makers in loader:
            loss = nn.functional.cross_entropy(model(recordings), makers)
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

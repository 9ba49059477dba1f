"""Recognizes who gives a speech, in two processes that average their gradients.

Planted: the list of speeches is sorted by length and cut in two halves, so that rank 1 has the long
ones and reads four times as much as rank 0, which waits for it in each step.
"""

import argparse
import socket
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

SPEECHES, SPEAKERS, MELS, BATCH, RANKS = 320, 8, 40, 10, 2
SECOND, STEP = 0.0020, 0.05  # reading a second of sound from the store; the device's part


def lengths():
    rng = np.random.default_rng(881)
    return rng.lognormal(1.9, 0.9, SPEECHES).clip(2, 40)


class Speeches(Dataset):
    def __init__(self):
        self.seconds = lengths()

    def __len__(self):
        return SPEECHES

    def read(self, index):
        frames = int(self.seconds[index] * 25)
        time.sleep(SECOND * self.seconds[index])
        rng = np.random.default_rng(index)
        return rng.standard_normal((frames, MELS), dtype=np.float32)

    def __getitem__(self, index):
        frames = self.read(index)
        frames = (frames - frames.mean(0)) / (frames.std(0) + 1e-4)
        return torch.from_numpy(frames[:100]), index % SPEAKERS


class OfRank(Sampler):
    """The part of a rank: of similar length, so that little is filled up."""

    def __init__(self, seconds, rank, interleave):
        order = np.argsort(seconds, kind="stable")
        half = len(order) // RANKS
        self.mine = order[rank::RANKS] if interleave else order[rank * half : (rank + 1) * half]

    def __iter__(self):
        for place in torch.randperm(len(self.mine)).tolist():
            yield int(self.mine[place])

    def __len__(self):
        return len(self.mine)


def padded(samples):
    frames, speakers = zip(*samples, strict=True)
    return nn.utils.rnn.pad_sequence(frames, batch_first=True), torch.tensor(speakers)


def average(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= RANKS


def train(rank, port, epochs, interleave):
    torch.manual_seed(881)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS
    )
    data = Speeches()
    loader = DataLoader(
        data,
        BATCH,
        sampler=OfRank(data.seconds, rank, interleave),
        num_workers=1,
        collate_fn=padded,
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Linear(MELS, 48), nn.ReLU(), nn.Linear(48, SPEAKERS))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    begin = time.perf_counter()
    for epoch in range(epochs):
        for frames, speakers in loader:
            loss = nn.functional.cross_entropy(model(frames).mean(1), speakers)
            optimizer.zero_grad()
            loss.backward()
            time.sleep(STEP)  # the deeper layers
            average(model)
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.3f}", flush=True)
    if rank == 0:
        print(f"seconds {time.perf_counter() - begin:.3f}", flush=True)
    del loader
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(train, (port, args.epochs, args.without), nprocs=RANKS)


if __name__ == "__main__":
    main()

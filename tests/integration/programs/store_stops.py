"""Two ranks under `lotus run`, whose store is stopped when they have met; they train all the same.

The store is a process of its own. Started without a rank it starts all three; each rank writes to
$TRUTH.RANK which samples it trained on, and what was said.
"""

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta

import rank_job

PATIENCE = timedelta(seconds=300)
WAIT_S = 0.5
GIVEN = {
    "balance": {"balance": {"batch_sizes": [6, 2], "loss": "mean", "wait_s": WAIT_S}},
    "mode": {
        "mode": {
            "name": "local",
            "every": 2,
            "after": 0,
            "groups": [],
            "staleness": 4,
            "wait_s": WAIT_S,
        }
    },
}


def serve():
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, None, True, PATIENCE, wait_for_workers=False)
    print(store.port, flush=True)
    sys.stdin.read()


def start_all(what):
    words = [sys.executable, __file__]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    store = subprocess.Popen([*words, "store"], **pipes)
    place = {"STORE": str(store.pid), "PORT": store.stdout.readline().strip()}
    ranks = [
        subprocess.Popen([*words, what], env={**os.environ, **place, "RANK": str(rank)})
        for rank in (0, 1)
    ]
    codes = [rank.wait() for rank in ranks]
    store.kill()
    store.wait()
    sys.exit(max(codes))


def main(what, rank):
    import torch
    import torch.distributed as dist
    from rank_training import Points, momentum, parameters
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    lotus = rank_job.Lotus()
    port = int(os.environ["PORT"])
    store = dist.TCPStore("127.0.0.1", port, None, False, PATIENCE, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)

    def train():
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Linear(6, 3).double())
        optimizer = momentum(model)
        points = Points(32)
        loader = DataLoader(points, 4, sampler=DistributedSampler(points))
        dist.barrier()
        if rank == 0:
            os.kill(int(os.environ["STORE"]), signal.SIGSTOP)
            while state(os.environ["STORE"]) != "T":
                time.sleep(0.01)
        dist.barrier()
        seen = []
        for x, y, samples in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            seen += samples.tolist()
        own = list(DistributedSampler(points))
        return {"seen": seen, "own": own, "parameters": parameters(model).tolist()}

    rank_job.leave(rank, lotus.on(GIVEN[what], train))


def state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


if __name__ == "__main__":
    if sys.argv[1] == "store":
        serve()
    elif "RANK" in os.environ:
        main(sys.argv[1], int(os.environ["RANK"]))
    else:
        start_all(sys.argv[1])

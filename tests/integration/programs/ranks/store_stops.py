"""Two ranks under `lotus run`, whose store stops or dies when they have met or while they train.

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
WAIT_S = 0.5  # for a store that has ended; before, ranks have time to agree on a slow machine
BALANCE = {"batch_sizes": [6, 2], "loss": "mean", "wait_s": 600}
MODE = {"every": 2, "after": 0, "groups": [], "staleness": 4, "wait_s": 600}
# What `lotus run` is told; before which step the store ends (0: before lotus asks), by what signal.
CASES = {
    "balance": ({"balance": BALANCE}, 0, signal.SIGSTOP),
    "mode": ({"mode": {**MODE, "name": "local"}}, 0, signal.SIGSTOP),
    "rebalance_dies": ({"balance": {**BALANCE, "rebalance_every": 3}}, 2, signal.SIGKILL),
    "async_stops": ({"mode": {**MODE, "name": "async"}}, 2, signal.SIGSTOP),
    "async_dies": ({"mode": {**MODE, "name": "async"}}, 2, signal.SIGKILL),
}


def serve():
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, None, True, PATIENCE, wait_for_workers=False)
    print(store.port, flush=True)
    sys.stdin.read()


def start_all(what):
    words = [rank_job.PYTHON, __file__]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    # A real Python: it is stopped and killed.
    store = subprocess.Popen([sys.executable, __file__, "store"], **pipes)
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

    case, before, number = CASES[what]
    lotus = rank_job.Lotus()
    port = int(os.environ["PORT"])
    store = dist.TCPStore("127.0.0.1", port, None, False, PATIENCE, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    truth = {"seen": [], "stopped": ""}

    def train():
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Linear(6, 3).double())
        optimizer = momentum(model)
        points = Points(32 if not before else 320)
        loader = DataLoader(points, 4, sampler=DistributedSampler(points))
        truth["own"] = list(DistributedSampler(points))
        dist.barrier()
        if not before:
            end_store(rank, number)
        for step, (x, y, samples) in enumerate(loader, 1):
            if step == before:
                end_store(rank, number)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            truth["seen"] += samples.tolist()
        truth["parameters"] = parameters(model).tolist()
        return truth

    try:
        rank_job.leave(rank, lotus.on(case, train))
    except SystemExit as error:
        rank_job.leave(rank, {**truth, "stopped": str(error)})


def end_store(rank, number):
    """Once both ranks are here; without collectives, by which modes see that ranks meet."""
    place = os.environ["TRUTH"]
    with open(f"{place}.there.{rank}", "w"):
        pass
    while not all(os.path.exists(f"{place}.there.{number}") for number in (0, 1)):
        time.sleep(0.01)
    store = os.environ["STORE"]
    if rank == 0:
        os.kill(int(store), number)
    while state(store) not in "TZ":
        time.sleep(0.01)
    kind = sys.modules["_lotus_inside.distributed.store_timeout"].StoreWithTimeout
    known = kind._within

    def hurried(self, call, *arguments):
        self.wait_s = WAIT_S
        return known(self, call, *arguments)

    kind._within = hurried


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

"""One of two ranks, each of which is told that it is on a host of its own.

Rank 0 leaves the port of its store, which the system chose, at $TRUTH.port. The loop goes on until
both ranks have met twice, as the logs in $LOGS tell.
"""

import glob
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

if __name__ == "__main__":
    torch.set_num_threads(1)
    rank, port = int(os.environ["RANK"]), os.environ["PORT"]
    patience = timedelta(seconds=900)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, 2, True, patience, wait_for_workers=False)
        with open(f"{port}.new", "w") as file:
            file.write(str(store.port))
        os.rename(f"{port}.new", port)
    else:
        for _ in range(30_000):
            if os.path.exists(port):
                break
            time.sleep(0.02)
        with open(port) as file:
            store = dist.TCPStore("127.0.0.1", int(file.read()), 2, False, patience)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    model = nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
    met = torch.zeros(1)
    end = time.monotonic() + 600
    while met < 2:
        for batch in DataLoader(torch.ones(4, 1), batch_size=2):
            model(batch).sum().backward()
        time.sleep(0.05)
        logs = [Path(path).read_bytes() for path in glob.glob(os.environ["LOGS"])]
        met[0] = sum(log.count(b'"event": "clock"') for log in logs) if rank else 0
        met[0] += 2 * (time.monotonic() > end)  # the test sees that they did not meet
        dist.all_reduce(met)
    dist.barrier()
    if rank:
        dist.destroy_process_group()
        Path(f"{port}.left").touch()
    else:  # its store goes with it
        while not os.path.exists(f"{port}.left") and time.monotonic() < end:
            time.sleep(0.02)
        dist.destroy_process_group()
    sys.exit()

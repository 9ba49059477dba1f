"""Two ranks under `lotus run --mode async`, of which rank 0 has two batches of an epoch.

Then it `leaves` its loop and ends, and rank 1 goes on when it has ended; or it `raises`, when rank
1 has taken all other batches. Started without a rank it starts both, and prints their exit codes.
"""

import os
import subprocess
import sys
import tempfile
import time

import rank_job

BATCHES = 10


def start_both(how):
    with tempfile.TemporaryDirectory() as folder:
        place = {"MEETING": f"file://{folder}/store", "ENDED": f"{folder}/ended"}
        first, second = (
            subprocess.Popen(
                [rank_job.PYTHON, __file__, how], env={**os.environ, **place, "RANK": str(rank)}
            )
            for rank in range(2)
        )
        codes = [first.wait()]
        os.mkdir(place["ENDED"])
        print(*codes, second.wait())


def main(how):
    import torch.distributed as dist
    from rank_training import Points, momentum
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    rank = int(os.environ["RANK"])
    rank_job.meet(rank, 2)
    store = dist.distributed_c10d._get_default_store()
    points = Points(4 * BATCHES)
    loader = DataLoader(points, 4, sampler=DistributedSampler(points))
    model = DistributedDataParallel(nn.Linear(6, 3).double())
    optimizer = momentum(model)
    for number, (x, y, _) in enumerate(loader, 1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        taken = store.add("taken", 1)
        if number != 2:
            continue
        wanted = BATCHES if rank == 0 and how == "raises" else 4
        while taken < wanted:
            time.sleep(0.01)
            taken = store.add("taken", 0)
        if rank == 0 and how == "raises":
            raise RuntimeError("the last of its batches")
        if rank == 0:
            break
        while how == "leaves" and not os.path.exists(os.environ["ENDED"]):
            time.sleep(0.01)


if __name__ == "__main__":
    main(sys.argv[1]) if "RANK" in os.environ else start_both(sys.argv[1])

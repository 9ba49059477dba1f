"""Two ranks that train under `lotus run --rebalance-every`, one of them slow by its samples.

Started without a rank it starts both. The first case, `outside`, is what `lotus run` was told, and
rank 1 sleeps for each of its samples; the others put their own plan on, and are told made-up times.
For each case $TRUTH.RANK has what the tests ask for.
"""

import importlib
import os
import sys
import time

import rank_job

if __name__ == "__main__":
    rank_job.start_all(__file__, 2)

import torch
import torch.distributed as dist
from rank_training import Points, ahead, momentum, orders, parameters
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler

RANK, WORLD = int(os.environ["RANK"]), 2
SIZE = 8
SLEEP = (0, 0.03)[RANK]  # s a sample: far more than a busy machine adds to a step of rank 0
TAKES = (1_000_000, 20_000_000)[RANK]  # ns a sample, as made up


class Net(nn.Module):
    def __init__(self, options):
        super().__init__()
        torch.manual_seed(3)
        kind = torch.float64
        self.first, self.last = nn.Linear(6, 8, dtype=kind), nn.Linear(8, 3, dtype=kind)
        self.norm = nn.BatchNorm1d(8, dtype=kind) if "norm" in options else None
        self.again = "checkpoint" in options
        self.slow, self.samples = "slow" in options, 0

    def forward(self, x):
        self.samples += len(x)
        if self.slow:
            time.sleep(SLEEP * len(x))
        inner = torch.tanh(self.first(x))
        inner = self.norm(inner) if self.norm is not None else inner
        if self.again:
            inner = checkpoint(torch.sin, inner, use_reentrant=True)
        return self.last(inner)


def step_with(optimizer, net):
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def train(model, make, epochs, options):
    """Returns the samples of each batch that it trained on, by epoch, and the loaders' lengths."""
    optimizer, loader = momentum(model), make()
    seen, lengths = [], []
    for epoch in range(epochs):
        loader = make() if "again" in options else loader
        loader.sampler.set_epoch(epoch)
        lengths.append(len(loader))
        seen.append([])
        for x, y, samples in ahead(loader) if "ahead" in options else loader:
            seen[-1].append(samples.tolist())
            loss = nn.functional.cross_entropy(model(x), y)
            if "accumulate" in options and len(seen[-1]) % 2:
                with model.no_sync():
                    loss.backward()
                continue
            loss.backward()
            step_with(optimizer, model)
            if "break" in options and len(seen[-1]) == 20:
                break
        if "look" in options and RANK == 0:
            next(iter(loader))
    return seen, lengths


def alone(epochs, points, options):
    """One process that trains on the same global batches."""
    net = Net(options)
    net.slow = False
    optimizer = momentum(net)
    for batches in epochs:
        for number, samples in enumerate(batches, 1):
            nn.functional.cross_entropy(net(points.x[samples]), points.y[samples]).backward()
            if "accumulate" not in options or number % 2 == 0:
                step_with(optimizer, net)
    return net


def make_up_times(net):
    """Have steps take what their samples say, whatever else the machine does."""
    kind = importlib.import_module("_lotus_inside.distributed.rebalancing").Rebalancing
    known = vars(kind).get("real", kind.averaged)
    before = end = 0

    def averaged(self, times):
        nonlocal before, end
        self.now = lambda: 0
        ready, before = end + TAKES * (net.samples - before), net.samples
        end = ready + 1000
        known(self, times and (ready, ready, end))

    kind.real, kind.averaged = known, averaged


def listen(costs):
    """Have what each step is taken to cost this rank, with its share."""
    kind = importlib.import_module("_lotus_inside.distributed.share_solver").Costs
    known = kind.add

    def add(self, at, share, own, wait):
        costs.append((share, own))
        known(self, at, share, own, wait)

    kind.add = add


def trained(many=331, epochs=3, drop=False, options=(), workers=0, **more):
    """Both ranks train, then one process does so on what they saw."""
    points = Points(many)

    def make():
        sampler = DistributedSampler(points, seed=7)
        return DataLoader(
            points, SIZE, sampler=sampler, drop_last=drop, num_workers=workers, **more
        )

    model = DistributedDataParallel(Net(options))
    own = []
    if "slow" in options:
        listen(own)
    else:
        make_up_times(model.module)
    seen, lengths = train(model, make, epochs, options)
    both = [None] * WORLD
    dist.all_gather_object(both, (seen, parameters(model.module)))
    whole = [
        [[*mine, *other] for mine, other in zip(*parts, strict=True)]
        for parts in zip(both[0][0], both[1][0], strict=True)
    ]
    far = None
    if "norm" not in options:
        net = alone(whole, points, options)
        far = float((parameters(net) - parameters(model.module)).abs().max())
    return {
        "far": far,
        "ranks_far": float((both[0][1] - both[1][1]).abs().max()),
        "moved": float((parameters(Net(options)) - parameters(model.module)).abs().max()),
        "own": own[: sum(lengths)],
        "lengths": lengths,
        "sizes": [[len(batch) for batch in epoch] for epoch in seen],
        "whole": whole,
        "order": orders(points, epochs),
    }


PLAN = {
    "balance": {
        "batch_sizes": [SIZE] * WORLD,
        "loss": "mean",
        "wait_s": 600,
        "rebalance_every": 12,
    }
}
KEPT = {"workers": 2, "persistent_workers": True}
CASES = {
    "plain": {},
    "dropped": {"drop": True},
    "workers": {"workers": 2, "drop": True, "prefetch_factor": 1 + RANK},
    "persistent": KEPT,
    "again": {"options": ["again"], "many": 171, "epochs": 6},
    "ahead": {"options": ["ahead"]},
    "accumulated": {"options": ["accumulate"], "many": 320, "epochs": 5},
    "broken_off": {"options": ["break"], "workers": 2, "epochs": 4},
    "norm": {"options": ["norm"]},
    "look": {"options": ["look"]},
    "checkpoint": {"options": ["checkpoint"]},
}


def main():
    rank_job.meet(RANK, WORLD)
    truth = {"outside": trained(171, options=["slow"])}
    lotus = rank_job.Lotus()
    for name, names in CASES.items():
        truth[name] = lotus.on(PLAN, lambda: trained(**names))  # noqa: B023
    if RANK == 1:
        sys.modules["_lotus_inside.distributed.rebalancing"].unfit = lambda models: (
            "it is elsewhere"
        )
    truth["unfit"] = lotus.on(PLAN, lambda: trained(many=64))
    rank_job.leave(RANK, truth)


if __name__ == "__main__":
    main()

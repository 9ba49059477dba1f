"""Models, loaders and training of the ranks of mode_ranks.py."""

import copy
import os
import time

import torch
import torch.distributed as dist
from rank_training import Points, parameters
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

RANK, WORLD = int(os.environ["RANK"]), 3
MANY, SIZE, RATE = 203, 8, 0.05


class Stream(IterableDataset):
    """As many batches as the number of the rank and one: 1, 2, 3."""

    def __iter__(self):
        points = Points(MANY)
        return iter([points[place] for place in range((RANK + 1) * SIZE)])


class Net(nn.Module):
    def __init__(self, options=()):
        super().__init__()
        torch.manual_seed(3)
        kind = torch.float64
        self.first, self.last = nn.Linear(6, 8, dtype=kind), nn.Linear(8, 3, dtype=kind)
        self.norm = nn.BatchNorm1d(8, dtype=kind) if "norm" in options else None

    def forward(self, x):
        inner = torch.tanh(self.first(x))
        return self.last(inner if self.norm is None else self.norm(inner))


class Straight(nn.Module):
    """A loss whose gradient is the same whatever the parameters are."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(4, dtype=torch.float64))

    def forward(self, x):
        return (self.weights * torch.arange(4, dtype=torch.float64)).sum()


def wrap(net, options=()):
    model = DistributedDataParallel(
        net, find_unused_parameters="unused" in options, static_graph="static" in options
    )
    if "hook" in options:
        model.register_comm_hook(None, fp16_compress_hook)
    if "sync_norm" in options:  # afterwards, as DDP refuses it on a CPU
        net.idle = nn.SyncBatchNorm(8, affine=False, track_running_stats=False)
    return model


def loss_of(net, x, y):
    made = net(x)
    return made if made.dim() == 0 else nn.functional.cross_entropy(made, y)


def trained(loader_of=None, net=None, options=(), epochs=2):
    """Train as a user's script does; returns samples of each batch and parameters of all ranks."""
    loader = distributed(options) if loader_of is None else loader_of()
    net = Net(options) if net is None else net
    model = wrap(net, options)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    seen, ends = [], []
    for epoch in range(epochs):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        model.train()
        seen.append([])
        for x, y, samples in loader:
            seen[-1].append(samples.tolist())
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()
        ends.append(parameters(net).clone())
        model.eval()
        with torch.no_grad():  # a loader that is not trained on, of other lengths
            for x, y, _ in DataLoader(Points(MANY), 50 + RANK):
                loss_of(net, x, y)
    every = [None] * WORLD
    dist.all_gather_object(every, (seen, ends, [buffer.clone() for buffer in net.buffers()]))
    return {
        "seen": [rank[0] for rank in every],
        "ends": [[end.tolist() for end in rank[1]] for rank in every],
        "buffers": [[buffer.tolist() for buffer in rank[2]] for rank in every],
    }


def distributed(options=()):
    points = Points(MANY)
    return DataLoader(
        points,
        SIZE,
        sampler=DistributedSampler(points, seed=7),
        num_workers=2 if "workers" in options else 0,
        persistent_workers="workers" in options,
    )


def fitted(model, loader, epoch=0, options=()):
    """One epoch, and what the options say that happens beside it; as `trained` returns it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    loader.sampler.set_epoch(epoch)
    seen = []
    if "peek" in options and RANK == 0:
        next(iter(loader))
    for x, y, samples in loader:
        seen.append(samples.tolist())
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        if "meet" in options:
            dist.all_reduce(loss.detach())
        if "leave" in options and len(seen) == (12 if RANK == 2 else 2):
            break
        if "leave" in options and RANK == 2 and len(seen) == 1:
            while dist.distributed_c10d._get_default_store().add("left", 0) < 2:
                time.sleep(0.01)
    if "leave" in options:
        dist.distributed_c10d._get_default_store().add("left", 1)
    if "look" in options and RANK == 0:  # what one rank does alone
        with torch.no_grad():
            sum(float(model.module(x).sum()) for x, _, _ in loader)
    if "copy" in options:
        copy.deepcopy(model), copy.deepcopy(loader)
    every = [None] * WORLD
    buffers = [buffer.clone() for buffer in model.module.buffers()]
    dist.all_gather_object(every, (seen, parameters(model.module), buffers))
    return {
        "seen": [[rank[0]] for rank in every],
        "ends": [[rank[1].tolist()] for rank in every],
        "buffers": [[buffer.tolist() for buffer in rank[2]] for rank in every],
    }


def joined(truths):
    return {
        name: [[value for truth in truths for value in truth[name][rank]] for rank in range(WORLD)]
        for name in ("seen", "ends", "buffers")
    }

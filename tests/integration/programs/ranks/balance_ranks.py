"""Two ranks that train under `lotus run --settings balance.json`, and say what each of them saw.

Started without a rank it starts both. The first case, `outside`, is what `lotus run` was told; the
others put their own plan on, as `lotus run` would. For each case $TRUTH.RANK has what the tests
ask for, or the error.
"""

import copy
import os
import threading

import rank_job

if __name__ == "__main__":
    rank_job.start_all(__file__, 2)

import torch
import torch.distributed as dist
from rank_training import Points, ahead, momentum, orders, parameters
from torch import nn
from torch.autograd import backward  # before lotus knows of any loader
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
)

RANK, WORLD = int(os.environ["RANK"]), 2


class Stream(IterableDataset):
    def __iter__(self):
        return iter(Points(16, torch.float32))


class Net(nn.Module):
    def __init__(self, kind, options):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.last = nn.Linear(6, 8, dtype=kind), nn.Linear(8, 3, dtype=kind)
        self.unused = nn.Linear(2, 2, dtype=kind) if "unused" in options else None
        self.norm = nn.BatchNorm1d(8, dtype=kind) if "norm" in options else None
        self.again = "checkpoint" in options

    def forward(self, x):
        inner = torch.tanh(self.first(x))
        inner = self.norm(inner) if self.norm is not None else inner
        if self.again:
            inner = checkpoint(torch.sin, inner, use_reentrant=True)
        # What is returned beside the answer is part of its graph.
        return {"answer": self.last(inner), "inner": inner}


class Held(torch.autograd.Function):
    """Whose backward pass takes until somebody lets it go on."""

    entered, goes_on = threading.Event(), threading.Event()

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        Held.entered.set()
        Held.goes_on.wait()
        return grad


def go_backward(loss, options):
    if "early" in options:
        backward(loss)
    elif "beside" in options:  # while another thread is in a backward pass of its own
        Held.entered.clear()
        Held.goes_on.clear()
        other = Held.apply(torch.ones((), requires_grad=True))
        thread = threading.Thread(target=other.backward)
        thread.start()
        Held.entered.wait()
        loss.backward()
        Held.goes_on.set()
        thread.join()
    else:
        loss.backward()


class OwnSampler(DistributedSampler):
    pass


def loss_of(net, x, y, options):
    made = net(x)
    how = "sum" if "sum" in options else "mean"
    loss = nn.functional.cross_entropy(made["answer"], y, reduction=how)
    if "penalty" in options:
        loss = loss + 0.01 * sum((parameter**2).sum() for parameter in net.parameters())
    return loss


def train(model, loader, epochs, options):
    """Returns the samples of each batch that it trained on."""
    optimizer = momentum(model)
    seen = []
    for epoch in range(epochs):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        begun = len(seen)
        for x, y, samples in ahead(loader) if "ahead" in options else loader:
            seen.append(samples.tolist())
            if "accumulate" in options and len(seen) % 2:
                with model.no_sync():
                    loss_of(model, x, y, options).backward()
                continue
            go_backward(loss_of(model, x, y, options), options)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        assert len(seen) - begun == len(loader)
    return seen


def alone(batches, points, kind, options):
    """One process that trains on the same global batches."""
    net = Net(kind, options)
    optimizer = momentum(net)
    for number, samples in enumerate(batches, 1):
        loss = loss_of(net, points.x[samples], points.y[samples], options)
        (loss / WORLD if "sum" in options else loss).backward()  # DDP averages sums
        if "accumulate" in options and number % 2:
            continue
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return net


def wrap(net, options):
    model = DistributedDataParallel(
        net, find_unused_parameters="unused" in options, static_graph="static" in options
    )
    if "half" in options:
        model.register_comm_hook(None, fp16_compress_hook)
    if "hook" in options:
        model.register_comm_hook(None, own_hook)
    return model


def own_hook(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    work = dist.all_reduce(bucket.buffer().div_(WORLD), async_op=True)
    return work.get_future().then(lambda done: done.value()[0])


def trained(name, many=203, size=8, kind=torch.float64, options=(), epochs=2, drop=False):
    """Both ranks train, then one process does so on what they saw."""
    points = Points(many, kind)
    sampler = DistributedSampler(points, seed=7, drop_last="sampler_drops" in options)
    workers = 1 if "workers" in options else 0
    loader = DataLoader(points, size, sampler=sampler, drop_last=drop, num_workers=workers)
    length = len(loader)
    model = wrap(Net(kind, options), options)
    seen = train(model, loader, epochs, options)
    net = model.module
    both = [None] * WORLD
    dist.all_gather_object(both, (seen, parameters(net)))
    whole = [[*first, *second] for first, second in zip(both[0][0], both[1][0], strict=True)]
    if "padded" in options:  # the last step's only sample, which the other rank does not count
        whole = [samples if len(samples) > 2 else samples[:1] for samples in whole]
    far = (parameters(alone(whole, points, kind, options)) - parameters(net)).abs().max()
    return {
        "far": float(far),
        "ranks_far": float((both[0][1] - both[1][1]).abs().max()),
        "moved": float((parameters(Net(kind, options)) - parameters(net)).abs().max()),
        "length": length,
        "batch_size": loader.batch_size,
        "mine": seen,
        "whole": whole,
        "order": orders(points, epochs),
    }


def as_written(loader_of, options=(), model=True):
    """What a job that cannot be shared out trains on, and how far off its gradients are."""
    net = Net(torch.float32, options)
    wrapped = wrap(copy.deepcopy(net), options) if model else net
    loader = loader_of()
    x, y, samples = next(iter(loader))
    loss_of(wrapped, x, y, options).backward()
    far = 0.0
    if model:
        # What DDP makes of it without a weight: the average of both ranks' means.
        plain = torch.autograd.grad(loss_of(net, x, y, options), list(net.parameters()))
        for mine, gradient in zip(wrapped.parameters(), plain, strict=True):
            dist.all_reduce(gradient)
            far = max(far, float((mine.grad - gradient / WORLD).abs().max()))
    own = None
    if isinstance(loader.sampler, DistributedSampler):
        own = list(loader.sampler)[: loader.batch_size]
    return {"samples": samples.tolist(), "own": own, "far": far}


def distributed(many=64, size=8, kind=DistributedSampler, **more):
    points = Points(many, torch.float32)
    return DataLoader(points, size, sampler=kind(points, seed=7), **more)


def batches_of_its_own():
    points = Points(64, torch.float32)
    return DataLoader(points, batch_sampler=BatchesOfMine(DistributedSampler(points), 8, False))


class BatchesOfMine(BatchSampler):
    pass


def two_loaders():
    first = distributed()
    two_loaders.second = distributed(32)
    return first


def uneven_data():
    return distributed(64 + 16 * RANK)


def alone_on_this_rank():
    return distributed(kind=OwnSampler if RANK else DistributedSampler)


def shuffled():
    points = Points(64, torch.float32)
    return DataLoader(points, 8, sampler=RandomSampler(points))


POINTS = {"dataset": "Points"}
# By name: the plan's shares, more of the plan, what trains.
EQUAL = {
    "unequal_float32": ([11, 5], {}, {"kind": torch.float32}),
    "halves_float32": ([11, 5], {}, {"kind": torch.float32, "options": ["half"]}),
    "unequal_lopsided": ([15, 1], {}, {}),
    "equal": ([8, 8], {}, {}),
    "equal_even": ([8, 8], {}, {"many": 208}),
    "dropped": ([11, 5], {}, {"drop": True}),
    "sampler_drops": ([3, 13], {}, {"options": ["sampler_drops"]}),
    "padded": ([11, 5], {}, {"many": 209, "options": ["padded"]}),
    "accumulated": ([11, 5], {}, {"many": 208, "options": ["accumulate"]}),
    "ahead": ([13, 3], {}, {"options": ["ahead"]}),
    "unused": ([11, 5], {}, {"options": ["unused"]}),
    "static": ([11, 5], {}, {"options": ["static"]}),
    "sum": ([11, 5], {"loss": "sum"}, {"options": ["sum"]}),
    "penalty_workers": ([11, 5], {}, {"options": ["penalty", "workers"]}),
    "checkpoint": ([11, 5], {}, {"options": ["checkpoint"]}),
    "other_whole": ([17, 5], {}, {}),
    "early": ([11, 5], {}, {"options": ["early"]}),
    "beside": ([11, 5], {}, {"options": ["beside"]}),
}
# What else `lotus run` puts on with shares.
KEPT = {
    "loader": {"dataset": "Points"},
    "setting": {"num_workers": 2, "persistent_workers": True},
    "iterable_safe": False,
}
SYNC = {"name": "sync", "every": 8, "after": 0, "groups": [], "staleness": 4, "wait_s": 600}
TOGETHER = {
    "tuned": {"loaders": [KEPT]},
    "mode": {"mode": SYNC},
    "mode_tuned": {"mode": SYNC, "loaders": [KEPT]},
}
REFUSED = {
    "sampler": ([11, 5], {"loader": POINTS}, shuffled, {}),
    "own_sampler": ([11, 5], {"loader": POINTS}, lambda: distributed(kind=OwnSampler), {}),
    "batch_sampler": ([11, 5], {"loader": POINTS}, batches_of_its_own, {}),
    "stream": ([11, 5], {"loader": {"dataset": "Stream"}}, lambda: DataLoader(Stream(), 8), {}),
    "hook": ([11, 5], {}, distributed, {"options": ["hook"]}),
    "no_model": ([11, 5], {}, distributed, {"model": False}),
    "other_world": ([6, 5, 5], {}, distributed, {}),
    "other_model": ([11, 5], {"model": {"parameters": 5, "shapes": "x"}}, distributed, {}),
    "norm_of_one": ([15, 1], {}, distributed, {"options": ["norm"]}),
    "two_loaders": ([11, 5], {}, two_loaders, {}),
    "one_rank": ([11, 5], {"loader": POINTS}, alone_on_this_rank, {}),
    "uneven_data": ([11, 5], {}, uneven_data, {}),
    "too_few": ([11, 5], {}, lambda: distributed(1), {}),
}


def plan(sizes, more):
    return {"balance": {"batch_sizes": sizes, "loss": "mean", "wait_s": 600, **more}}


def main():
    rank_job.meet(RANK, WORLD)
    truth = {"outside": trained("outside")}
    lotus = rank_job.Lotus()
    for name, (sizes, more, names) in EQUAL.items():
        truth[name] = lotus.on(plan(sizes, more), lambda: trained(name, **names))  # noqa: B023
    for name, extra in TOGETHER.items():
        truth[name] = lotus.on(plan([11, 5], {}) | extra, lambda: trained(name))  # noqa: B023
    for name, (sizes, more, loader, names) in REFUSED.items():
        call = lambda: as_written(loader, **names)  # noqa: E731, B023
        truth[name] = lotus.on(plan(sizes, more), call)
    truth["norm"] = lotus.on(plan([10, 6], {}), lambda: as_written(distributed, ["norm"]))
    # Last, as the ranks count their questions: rank 1 knows nothing of lotus.
    if RANK == 0:
        rank_job.store_has_time()
        waiting = plan([11, 5], {"wait_s": 0.2})
        truth["without"] = lotus.on(waiting, lambda: as_written(distributed))
    else:
        truth["without"] = as_written(distributed)
        dist.barrier()
    rank_job.leave(RANK, truth)


if __name__ == "__main__":
    main()

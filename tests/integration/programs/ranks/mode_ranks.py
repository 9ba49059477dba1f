"""Three ranks that train under `lotus run --mode`, and say what each of them saw.

Started without a rank it starts all. The first case, `outside`, is what `lotus run` was told; the
others put their own mode on, as `lotus run` would. For each case $TRUTH.RANK has what the tests
ask for.
"""

import gc
import importlib
import queue
import sys
import threading
import time
import weakref

import rank_job

if __name__ == "__main__":
    rank_job.start_all(__file__, 3)

import torch
import torch.distributed as dist
from mode_expected import checked, far, simulated, whole_batches
from mode_training import (
    MANY,
    RANK,
    SIZE,
    WORLD,
    Net,
    Straight,
    Stream,
    distributed,
    fitted,
    joined,
    trained,
    wrap,
)
from rank_training import Points, ahead, parameters
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, Subset


def uneven():
    return trained(lambda: DataLoader(Stream(), SIZE))


def two_models():
    other = wrap(Net())
    return {**trained(), "other": float(parameters(other)[0])}


def anew():
    """Each epoch has a loader of its own, and one is read before that is not trained on."""
    for _ in DataLoader(Points(MANY), 40):
        pass
    net, truths = Net(), []
    model, keep = wrap(net), []
    for epoch in range(2):
        keep.append(distributed())
        truths.append(fitted(model, keep[-1], epoch))
    return joined(truths)


def folds():
    """Two models, one after the other, each on a loader of its own."""
    return joined([fitted(wrap(Net()), distributed(), epoch) for epoch in range(2)])


def within_join():
    """Each epoch is in torch's Join, which ends by writing one rank's parameters to all."""
    model, loader, truths = wrap(Net()), distributed(), []
    for epoch in range(2):
        with model.join():
            truths.append(fitted(model, loader, epoch))
    return joined(truths)


def beside(*options):
    """Two epochs with something beside them."""
    model, loader = wrap(Net()), distributed(options)
    return joined([fitted(model, loader, epoch, options) for epoch in range(2)])


class Ahead:
    """Reads a loader in a thread of its own."""

    def __init__(self):
        self.loader = distributed()
        self.sampler = self.loader.sampler

    def __iter__(self):
        read, batches = queue.Queue(2), iter(self.loader)

        def fill():
            for batch in batches:
                read.put(batch)
            read.put(None)

        threading.Thread(target=fill, daemon=True).start()
        return iter(read.get, None)


def one_over():
    """A last batch of one sample, on which batch norm cannot train; the ranks' own have three."""
    points = Subset(Points(MANY), range(201))
    return DataLoader(points, SIZE, sampler=DistributedSampler(points))


class OneAhead:
    """Asks for the next batch before it gives one, as some libraries do."""

    def __init__(self):
        self.loader = distributed()
        self.sampler = self.loader.sampler

    def __iter__(self):
        return ahead(self.loader)


def hosts_of_one_name():
    """Ranks 0 and 2 on one, rank 1 on another."""
    identity = importlib.import_module("_lotus_inside.common.process_identity")
    known, identity.boot_id = identity.boot_id, lambda: f"boot {RANK % 2}"
    truth = checked(3, groups=PAIR)
    identity.boot_id = known
    return truth


def own_buffer():
    net = Net()
    net.register_buffer("own", torch.full((2,), float(RANK)))
    net._ddp_params_and_buffers_to_ignore = ["own"]
    return trained(net=net)


class Rebound(Net):
    """Puts another tensor in its buffer's place in each step."""

    def __init__(self):
        super().__init__()
        self.register_buffer("own", torch.zeros(2, dtype=torch.float64))

    def forward(self, x):
        self.own = 0.5 * self.own + x.mean().detach()
        return super().forward(x)


def replaced(change, every=None):
    """Its tensors are others in the second epoch than when lotus looked at them."""
    model, loader = wrap(Rebound()), distributed()
    truths = [fitted(model, loader, 0)]
    change(model.module)
    truth = joined([*truths, fitted(model, loader, 1)])
    if every is not None:
        truth["far"] = far(truth, simulated(truth["seen"], every))
    return truth


def assign(net):
    known = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    net.load_state_dict(known, assign=True)
    net.last.bias.data = net.last.bias.data.clone()
    net.first.weight = nn.Parameter(net.first.weight.detach().clone())


def grow(net):
    net.more = nn.Parameter(torch.full((3,), float(RANK), dtype=torch.float64))


def grow_on_one(net):
    if RANK == 1:
        grow(net)


def read_before():
    """A loader whose workers stay is read before there is a model."""
    loader = distributed(["workers"])
    for _ in loader:
        pass
    return trained(lambda: loader)


def dead():
    """Whether a model that the program has no more is kept."""
    model = wrap(Net())
    truth = fitted(model, distributed())
    references = [weakref.ref(model), *map(weakref.ref, model.parameters())]
    del model
    gc.collect()
    return {**truth, "kept": sum(reference() is not None for reference in references)}


TUNED = {
    "loaders": [
        {
            "loader": {"dataset": "Points"},
            "setting": {"num_workers": 2, "persistent_workers": True},
            "iterable_safe": False,
        }
    ]
}
HYBRID = {"name": "hybrid", "groups": [[0, 2], [1]]}
PAIR = ((0, 2), (1,))
CASES = {
    "local_1": ({"name": "local", "every": 1}, lambda: checked(1)),
    "local_4": ({"name": "local", "every": 4}, lambda: checked(4)),
    "local_after": ({"name": "local", "every": 3, "after": 5}, lambda: checked(3, 5)),
    "local_static": (
        {"name": "local", "every": 4, "after": 2},
        lambda: checked(4, 2, options=["static"]),
    ),
    "local_norm": ({"name": "local", "every": 4}, lambda: trained(options=["norm"])),
    "local_uneven": ({"name": "local", "every": 2}, uneven),
    "hybrid_1": ({**HYBRID, "every": 1}, lambda: checked(1, groups=PAIR)),
    "hybrid_3": ({**HYBRID, "every": 3}, lambda: checked(3, groups=PAIR)),
    "hybrid_hosts": ({"name": "hybrid", "every": 3}, hosts_of_one_name),
    "async_0": ({"name": "async", "staleness": 0}, whole_batches),
    "async_3": ({"name": "async", "staleness": 3}, lambda: trained(net=Straight())),
    "async_uneven": (
        {"name": "async", "staleness": 2},
        lambda: trained(lambda: DataLoader(Stream(), SIZE), Straight()),
    ),
    "sync": ({"name": "sync"}, trained),
    "sync_uneven": ({"name": "sync"}, uneven),
    # What programs do beside their epochs.
    "local_anew": ({"name": "local", "every": 4}, anew),
    "local_folds": ({"name": "local", "every": 4}, folds),
    "local_look": ({"name": "local", "every": 4}, lambda: beside("look", "copy")),
    "local_own": ({"name": "local", "every": 4}, own_buffer),
    "local_replaced": ({"name": "local", "every": 4}, lambda: replaced(assign, 4)),
    "async_replaced": ({"name": "async"}, lambda: replaced(assign)),
    "local_grown": ({"name": "local", "every": 4}, lambda: replaced(grow)),
    "async_grown": ({"name": "async"}, lambda: replaced(grow)),
    "local_differ": ({"name": "local", "every": 4}, lambda: replaced(grow_on_one)),
    "async_differ": ({"name": "async"}, lambda: replaced(grow_on_one)),
    "local_read": ({"name": "local", "every": 4}, read_before),
    "local_tuned": ({"name": "local", "every": 4, **TUNED}, lambda: checked(4)),
    "async_tuned": ({"name": "async", **TUNED}, trained),
    "local_dead": ({"name": "local", "every": 4}, dead),
    "async_dead": ({"name": "async"}, dead),
    "sync_dead": ({"name": "sync"}, dead),
    "hybrid_copy": ({**HYBRID, "every": 3}, lambda: beside("copy")),
    "async_anew": ({"name": "async"}, anew),
    "async_peek": ({"name": "async"}, lambda: beside("peek", "look", "workers")),
    "async_one": ({"name": "async"}, lambda: trained(one_over, options=["norm"])),
    "async_meet": ({"name": "async"}, lambda: beside("meet", "copy")),
    "local_ahead": ({"name": "local", "every": 4}, lambda: trained(OneAhead)),
    "local_join": ({"name": "local", "every": 4}, within_join),
    "local_thread": ({"name": "local", "every": 4}, lambda: trained(Ahead)),
    "hybrid_thread": ({**HYBRID, "every": 3}, lambda: trained(Ahead)),
    "async_thread": ({"name": "async"}, lambda: trained(Ahead)),
    "async_leave": ({"name": "async", "staleness": 1}, lambda: beside("leave")),
    # Refused.
    "hosts": ({"name": "hybrid"}, trained),
    "groups": ({"name": "hybrid", "groups": [[0], [1]]}, trained),
    "unused": (HYBRID, lambda: trained(options=["unused"])),
    "hook": (HYBRID, lambda: trained(options=["hook"])),
    "sync_norm": ({"name": "local"}, lambda: trained(options=["sync_norm"])),
    "static": ({"name": "local"}, lambda: trained(options=["static"])),
    "two_models": ({"name": "local"}, two_models),
}


def mode(case):
    usual = {"every": 8, "after": 0, "groups": [], "staleness": 4, "wait_s": 600}
    loaders = case.get("loaders", [])
    mine = {name: value for name, value in case.items() if name != "loaders"}
    return {"mode": usual | mine, "loaders": loaders}


def wait_for_the_others():
    """Have none that answers be too late, however slow the machine is."""
    agreeing = sys.modules["_lotus_inside.distributed.consensus"]
    known = agreeing._wait

    def wait(store, wanted, wait_s, *more):
        while "answered" in wanted and store.add("answered", 0) < WORLD - 1:
            time.sleep(0.01)
        return known(store, wanted, wait_s if "answered" in wanted else 600, *more)

    agreeing._wait = wait


def main():
    rank_job.meet(RANK, WORLD)
    truth = {"outside": checked(4)}
    lotus = rank_job.Lotus()
    truth["plain"] = trained()
    for name, (case, call) in CASES.items():
        truth[name] = lotus.on(mode(case), call)
    # Last, as the ranks count their questions: rank 1 knows nothing of lotus.
    if RANK == 1:
        truth["without"] = trained()
        dist.barrier()
    else:
        rank_job.store_has_time()
        wait_for_the_others()
        truth["without"] = lotus.on(mode({"name": "local", "wait_s": 0.2}), trained)
    rank_job.leave(RANK, truth)


if __name__ == "__main__":
    main()

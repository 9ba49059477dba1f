"""A job of two ranks that uses DistributedDataParallel in all the ways there are; forks both.

Then the same once more, without what lotus put into it. Writes to $TRUTH.RANK and $TRUTH.plain.RANK
as JSON: for each case its name, how many backward passes averaged, a digest of the gradients after
each pass and clock readings around it; and what a slow rank made wait.
"""

import hashlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Variable
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

torch.set_num_threads(1)
clock = time.monotonic_ns
truth = {"cases": []}


class Branches(nn.Module):
    """Two branches of which a forward uses one, or a checkpoint around the first."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, how="both"):
        if how == "checkpoint":
            return self.second(checkpoint(self.first, x.requires_grad_(), use_reentrant=True))
        if how == "nested":
            return {"out": [self.second(self.first(x))], "other": "text"}
        return self.first(x) if how == "first" else self.second(self.first(x))


def made(**options):
    torch.manual_seed(1)
    return DistributedDataParallel(Branches(), **options)


def data(step=0):
    return torch.full((4, 8), float(1 + dist.get_rank() + step))


def digest(*models):
    hasher = hashlib.sha256()
    for model in models:
        for parameter in model.parameters():
            hasher.update(b"-" if parameter.grad is None else parameter.grad.numpy().tobytes())
    return hasher.hexdigest()


def case(name, averaged, backwards, *models):
    """Run functions that each make one backward pass."""
    passes = []
    for backward in backwards:
        before = clock()
        error = ""
        try:
            backward()
        except ValueError as raised:
            error = str(raised)
        passes.append({"before": before, "after": clock(), "error": error})
        passes[-1]["digest"] = digest(*models)
    truth["cases"].append({"name": name, "averaged": averaged, "passes": passes})


def plain(model, step=0, **how):
    return lambda: model(data(step), **how).sum().backward()


def cases():
    model = made()
    loader = DataLoader(list(range(6)), batch_size=2)
    case("loop", 3, [plain(model, int(batch[0])) for batch in loader], model)

    def accumulate():
        with model.no_sync():
            model(data(1)).sum().backward()

    case("no_sync", 1, [accumulate, accumulate, plain(model, 2)], model)
    model = made(static_graph=True)
    case("static graph", 2, [plain(model), plain(model, 1)], model)
    model = made(find_unused_parameters=True)
    case("unused", 2, [plain(model, how="first"), plain(model, 1)], model)
    model = made()
    model.register_comm_hook(None, fp16_compress_hook)
    case("own hook", 2, [plain(model), plain(model, 1)], model)
    model = made()
    nested = [lambda: model(data(), how="nested")["out"][0].sum().backward()]
    case("nested output", 1, nested, model)
    generator, critic = made(), made()
    game = [lambda: critic(generator(data())).sum().backward()]
    case("two models", 1, game, generator, critic)
    model = made(broadcast_buffers=False)
    twice = [lambda: (model(data()).sum() + model(data(1)).sum()).backward()]
    case("two forwards", 1, twice, model)
    model = made()
    loss = model(data()).sum()
    again = [lambda: loss.backward(retain_graph=True), lambda: loss.backward(retain_graph=True)]
    case("backward twice", 1, again, model)

    def refused(gradient):
        raise ValueError("refused")

    def raising():
        out = model(data())
        out.register_hook(refused)
        out.sum().backward()

    model = made()
    case("an exception", 1, [raising, plain(model)], model)
    model = made(static_graph=True)
    case("checkpoint", 0, [plain(model, how="checkpoint")] * 2, model)
    place = {"rank": dist.get_rank(), "world_size": dist.get_world_size()}
    store = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=store, **place)
    model = made()
    case("another group", 1, [plain(model)], model)


def slow():
    """Rank 1 begins its backward when rank 0 has all its gradients, and 50 ms later."""
    store = dist.distributed_c10d._get_default_store()
    model = made()

    def ready():
        truth["told"] = clock()
        store.set("go", b"")

    out = model(data())
    if dist.get_rank() == 0:
        # Before DDP's own: it waits in there for the other rank.
        last = lambda gradient: Variable._execution_engine.queue_callback(ready)  # noqa: E731
        model.module.first.weight.register_hook(last)
    else:
        store.wait(["go"])
        time.sleep(0.05)
        truth["late"] = clock()
    case("slow", 1, [lambda: out.sum().backward()], model)


def rank(number, path):
    os.environ |= {"RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": "2"}
    store = f"file://{os.environ['TRUTH']}.store{path}"
    dist.init_process_group("gloo", init_method=store, rank=number, world_size=2)
    cases()
    slow()
    with open(f"{os.environ['TRUTH']}{path}.{number}", "w") as file:
        json.dump(truth, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    for path in ("", ".plain"):
        children = []
        for number in (0, 1):
            children.append(os.fork())
            if children[-1] == 0:
                if path and "_lotus_inside.trace.active" in sys.modules:
                    sys.modules["_lotus_inside.trace.active"].tracer.uninstall()
                rank(number, path)
                sys.exit()
        if sum(os.waitpid(child, 0)[1] for child in children):
            sys.exit("a rank failed")

"""What the scripts here share: what they got, what is left open, and what they know of it."""

import gc
import hashlib
import json
import multiprocessing
import os
import random
import re
import threading
import time

import numpy
import torch

clock = time.monotonic_ns
_loaders = []  # how often each loader was iterated, by its number
_truth = []


def digest(thing):
    """A short hash of every bit of a batch."""
    sha = hashlib.sha256()

    def add(part):
        sha.update(type(part).__name__.encode())
        if isinstance(part, torch.Tensor):
            sha.update(str((part.dtype, tuple(part.shape))).encode() + part.numpy().tobytes())
        elif isinstance(part, dict):
            for key, value in part.items():
                if key != "pid":
                    add(key)
                    add(value)
        elif isinstance(part, (list, tuple)):
            for value in part:
                add(value)
        else:
            sha.update(repr(part).encode())

    add(thing)
    return sha.hexdigest()[:16]


def settle():
    """Wait until the feeder threads of closed queues and the workers are gone.

    Both end by themselves; torch waits five seconds for a worker, which may be too few.
    """
    gc.collect()
    while multiprocessing.active_children() or any(
        thread.name == "QueueFeederThread" for thread in threading.enumerate()
    ):
        time.sleep(0.01)
    gc.collect()


def state():
    """Random state, open descriptors, threads and children of this process, as lines."""
    files = []
    for number in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the listing's own
            continue
        link = re.sub(r"\d+", "N", link)
        link = re.sub(r"\.(out|err)$|(plain|traced)(?=\.)", "", link)
        files.append((int(number), link))
    return [
        f"random {random.random()} {numpy.random.rand()} {torch.rand(()).item()}",
        f"files {sorted(files)}",
        f"threads {sorted(thread.name for thread in threading.enumerate())}",
        f"children {len(multiprocessing.active_children())}",
    ]


def known(batch):
    """(indices, worker, pid) of a batch that holds them."""
    if isinstance(batch, (list, tuple)):
        parts = [known(part) for part in batch]
        return [index for part in parts for index in part[0]], parts[0][1], parts[0][2]

    def values(key):
        value = batch[key]
        return [value] if isinstance(value, int) else torch.as_tensor(value).view(-1).tolist()

    return values("index"), values("worker")[0], values("pid")[0]


def epoch(loader, limit=None, step=0.0, out=print):
    """Iterate a loader once, by hand; print each batch's hash and note its times and content."""
    if not hasattr(loader, "number"):
        loader.number = len(_loaders)
        _loaders.append(0)
    number = loader.number
    ordinal = _loaders[number]
    _loaders[number] += 1
    rows = []
    row = {"epoch": ordinal, "batches": rows, "end": None, "tid": threading.get_native_id()}
    _truth.append(row)
    begin = clock()
    iterator = iter(loader)
    row["iter"] = [begin, clock()]
    lines = []
    while limit is None or len(rows) < limit:
        before = clock()
        try:
            batch = next(iterator)
        except StopIteration:
            row["end"] = [before, clock()]
            break
        after = clock()
        rows.append([before, after, *known(batch)])
        lines.append(f"{number} {ordinal} {digest(batch)}")
        if step:
            time.sleep(step)
    del iterator
    row["over"] = clock()
    for line in lines if getattr(loader, "in_order", True) else sorted(lines):
        out(line)


def write_truth(**more):
    with open(os.environ["TRUTH"], "w") as file:
        json.dump({"pid": os.getpid(), "epochs": _truth, **more}, file)

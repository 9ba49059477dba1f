"""Measures settings of one workload of workloads.py at the request of comparison.py.

    python measure.py NAME [--data DIR]

Reads a JSON object a line from stdin: {"setting": {...}, "seconds": S, "seed": N}, and answers each
with a line of rows; {"costs": S} asks for the costs of batches, for simulations of other machines.
Every request has a new loader and new workers in this one process: a new process would add 2 s for
importing torch to a measurement of 1 s, without changing the loader. Requests with the same seed
read the same samples in the same order.

A row has the rate over an epoch: samples / (first batch + batches x time per batch + end of the
workers), without the first and the last term if workers persist. Only a loader with persistent
workers is measured; the rate without them is calculated. Short epochs (50 batches or fewer) are run
as a whole instead, with and without persistent workers.
"""

import argparse
import json
import statistics
import sys
import time
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import torch
import workloads

SHORT = 50  # batches of an epoch that is measured whole
LEAST, MOST = 5, 200  # batches, however slow they are; and however quick, of costs
SETTLING = 0.4  # at most this part of the seconds goes to batches that are not counted


class Measured:
    """One workload: its data is made once, its loaders as often as asked for."""

    def __init__(self, name, folder):
        self.name, self.batches = name, workloads.BATCHES[name]
        self.size = workloads.SIZES[name]
        self.data = workloads.data(name, folder)
        self.step = workloads.STEPS[name]()

    def rows(self, setting, seconds, seed):
        """A row for each of `persistent_workers`; one where there are no workers."""
        workers = setting["num_workers"]
        kept = (False, True) if workers else (False,)
        if self.batches <= SHORT:
            share = seconds / len(kept)
            return [
                self.whole({**setting, "persistent_workers": persistent}, share, seed)
                for persistent in kept
            ]
        begin = time.monotonic()
        loader = self.loader({**setting, "persistent_workers": workers > 0}, seed)
        started = time.monotonic()
        iterator = iter(loader)
        self.take(iterator)
        first = time.monotonic() - started
        settling = time.monotonic()
        for _ in range(workers * (setting.get("prefetch_factor") or 2)):
            self.take(iterator)
            if time.monotonic() - settling > SETTLING * seconds:
                break
        count, counting = 0, time.monotonic()
        while count < LEAST or time.monotonic() - counting < seconds:
            try:
                self.take(iterator)
            except StopIteration:
                iterator = iter(loader)
                continue
            count += 1
        each = (time.monotonic() - counting) / count
        ending = time.monotonic()
        del iterator, loader
        shutdown = time.monotonic() - ending
        spent = time.monotonic() - begin
        rows = []
        for persistent in kept:
            extra = 0.0 if persistent or not workers else first + shutdown
            rows.append(
                {
                    "persistent_workers": persistent,
                    "samples_per_s": self.size / (each + extra / self.batches),
                    "first_batch_s": first,
                    "shutdown_s": shutdown,
                    "seconds": spent,
                }
            )
        return rows

    def whole(self, setting, seconds, seed):
        """Whole epochs, one after the other; the first of workers that persist is not counted."""
        begin = time.monotonic()
        loader = self.loader(setting, seed)
        first = self.epoch(loader)
        kept = setting["persistent_workers"]
        count, counting = (0, time.monotonic()) if kept else (1, begin)
        while count < 2 or time.monotonic() - counting < seconds:
            self.epoch(loader)
            count += 1
        each = (time.monotonic() - counting) / count
        ending = time.monotonic()
        del loader
        return {
            "persistent_workers": kept,
            "samples_per_s": self.batches * self.size / each,
            "first_batch_s": first,
            "shutdown_s": time.monotonic() - ending,
            "seconds": time.monotonic() - begin,
        }

    def epoch(self, loader):
        """One epoch; seconds to its first batch."""
        begin, iterator = time.monotonic(), iter(loader)
        self.take(iterator)
        first = time.monotonic() - begin
        for _ in range(self.batches - 1):
            self.take(iterator)
        return first

    def costs(self, seconds):
        """Return the cost of a batch in one process, ns, and how the program is made."""
        setting = {"num_workers": 0, "prefetch_factor": None}
        iterator = iter(self.loader(setting, 0))
        self.take(iterator)  # the first batch takes more
        cpu, wait, steps, used = [], [], [], 0.0
        begin = time.monotonic()
        while len(cpu) < LEAST or (time.monotonic() - begin < seconds and len(cpu) < MOST):
            batch, took, mine = clocked(next, iterator, None)
            if batch is None:
                iterator = iter(self.loader(setting, len(cpu)))
                continue
            cpu.append(mine)
            wait.append(max(took - mine, 0.0))
            _, took, mine = clocked(self.step, workloads.inputs(batch))
            steps.append(took)
            used += mine
        parts = batch if isinstance(batch, list) else [batch]
        copies = [[part.clone() for part in parts] for _ in range(9)]
        pickle = statistics.median(
            clocked(lambda copy=copy: bytes(ForkingPickler.dumps(copy)))[2] for copy in copies
        )
        first = [self.start(1) for _ in range(3)]
        middle = sorted(first)[1]
        fetch = statistics.median(c + w for c, w in zip(cpu, wait, strict=True))
        started, spawned, got = middle[0], middle[1], middle[2]
        return {
            "batches": self.batches,
            "size": self.size,
            "own": workloads.OWN[self.name],
            "iterable": isinstance(self.data, torch.utils.data.IterableDataset),
            "step_cores": round(used / sum(steps), 3),
            "cpu_ns": [round(seconds * 1e9) for seconds in cpu],
            "wait_ns": [round(seconds * 1e9) for seconds in wait],
            "step_ns": [round(seconds * 1e9) for seconds in steps],
            "pickle_ns": round(pickle * 1e9),
            "get_ns": round(got * 1e9),
            "spawn_ns": round(spawned * 1e9),
            "boot_ns": round(max(started - spawned - fetch, 0.001) * 1e9),
            "shutdown_ns": round(middle[3] * 1e9),
        }

    def start(self, workers):
        """Seconds to the first batch, of `iter`, CPU time to take a batch, seconds of the end."""
        begin = time.monotonic()
        iterator = iter(self.loader({"num_workers": workers, "prefetch_factor": 2}, 0))
        spawned = time.monotonic() - begin
        next(iterator)
        started = time.monotonic() - begin
        got = [clocked(next, iterator)[2] for _ in range(5)]
        begin = time.monotonic()
        del iterator
        return started, spawned, statistics.median(got), time.monotonic() - begin

    def loader(self, setting, seed):
        arguments = dict(setting)
        if not arguments["num_workers"]:
            arguments.pop("prefetch_factor", None)
        generator = torch.Generator().manual_seed(seed)
        return workloads.make(self.name, self.data, generator=generator, **arguments)

    def take(self, iterator):
        self.step(workloads.inputs(next(iterator)))


def clocked(call, *arguments):
    """Return what a call returns, its seconds and the CPU time of this thread.

    What it waited for a core while others had it is not counted.
    """
    queued = -in_queue()
    begin, mine = time.monotonic(), time.thread_time()
    result = call(*arguments)
    took, mine = time.monotonic() - begin, time.thread_time() - mine
    queued += in_queue()
    return result, max(took - queued, mine), mine


def in_queue():
    """Seconds that this thread was ready to run and had no core (Linux, schedstat)."""
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1]) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=list(workloads.BATCHES))
    parser.add_argument("--data", type=Path, default=workloads.PICTURES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured = Measured(options.name, options.data)
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if "costs" in question:
                rows = measured.costs(question["costs"])
            else:
                rows = measured.rows(question["setting"], question["seconds"], question["seed"])
        except Exception as error:
            rows = [{"failed": f"{type(error).__name__}: {error}".splitlines()[0]}]
        print(json.dumps(rows), flush=True)


if __name__ == "__main__":
    main()

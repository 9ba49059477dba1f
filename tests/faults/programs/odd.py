"""Odd things that programs do, one section each; prints what came of them."""

import gc
import importlib
import os
import subprocess
import sys
import threading
import time
import traceback

CLOCKS = {name: getattr(time, name) for name in ("time", "monotonic", "perf_counter")}
for name in CLOCKS:  # a test double that stands still, and one that runs backwards
    setattr(time, name, lambda: 1.0)
    setattr(time, name + "_ns", iter(range(10**9, 0, -1)).__next__)
time.thread_time_ns = iter(range(10**9, 0, -1)).__next__

import torch.utils.data.dataloader  # noqa: E402
from torch.utils.data import DataLoader, Dataset, get_worker_info  # noqa: E402

for name, clock in CLOCKS.items():  # queues wait by it
    setattr(time, name, clock)


class Forks:
    """The child calls operations too, and ends in its own way."""

    def __call__(self, value):
        if value % 4 == 0:
            pid = os.fork()
            if pid == 0:
                ADD(value)
                if get_worker_info() is None:
                    sys.exit(7)  # by way of all that is on the stack
                os._exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        return value


class Starts:
    def __call__(self, value):
        if value % 5 == 0:
            command = [sys.executable, "-c", "import json; print(json.dumps(3))"]
            assert subprocess.run(command, capture_output=True, check=True).stdout == b"3\n"
        return value


class Threads:
    def __call__(self, value):
        threads = [threading.Thread(target=ADD, args=(value,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return value


class Add:
    def __call__(self, value):
        return value + 1


class Fails:
    def __call__(self, value):
        if value == 3:
            raise LookupError("no picture", value)
        return value


class Pipeline:
    def __init__(self, *transforms):
        self.transforms = list(transforms)

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class Numbers(Dataset):
    def __init__(self, *transforms):
        self.transform = Pipeline(*transforms)

    def __len__(self):
        return 9

    def __getitem__(self, index):
        return self.transform(index)


ADD = Add()


def take(what, *transforms, workers=2, **kwargs):
    data = Numbers(ADD, *transforms)
    try:
        loader = DataLoader(data, batch_size=2, num_workers=workers, collate_fn=list, **kwargs)
        print(what, workers, list(loader), flush=True)
    except Exception as error:
        lines = traceback.format_exception(error)
        # The pid, and our own line in an exception that was caught.
        words = [word for word in "".join(lines).split() if not word.rstrip(").,").isdigit()]
        kept = " ".join(words)
        if "<lotus hook" in kept:
            kept = " ".join(
                line for line in "".join(lines).splitlines() if "<lotus hook" not in line
            )
            kept = " ".join(word for word in kept.split() if not word.rstrip(").,").isdigit())
        print(what, workers, type(error).__name__, kept, flush=True)
    gc.collect()  # a worker forked later would say that it cannot join what it inherits


def main():
    gc.freeze()  # what is collected is our own, not all of torch every time
    for workers in (0, 2):
        take("fork", Forks(), workers=workers)
        take("subprocess", Starts(), workers=workers)
        take("threads", Threads(), workers=workers)
        take("raise", Fails(), workers=workers)
    # What cannot be pickled is lost in the worker; torch waits for it in vain.
    take("pickle", lambda value: value if value < 5 else threading.Lock(), timeout=3)

    for name in [name for name in sys.modules if name.startswith("_lotus")]:
        del sys.modules[name]
    for workers in (0, 2):
        take("forgotten", workers=workers)
    importlib.reload(torch.utils.data.dataloader)
    for workers in (0, 2):
        take("reloaded", workers=workers)
    del sys.modules["torch.utils.data.dataloader"]
    fresh = importlib.import_module("torch.utils.data.dataloader")
    for workers in (0, 2):
        loader = fresh.DataLoader(Numbers(ADD), num_workers=workers, collate_fn=list)
        print("imported anew", list(loader), flush=True)


if __name__ == "__main__":
    main()

"""Uses features of torch's DataLoader one after the other and writes down what the user gets.

Arguments: how workers start, and the features, functions of paired_results.py and
paired_errors.py. Each writes down what it likes by `see`; what it raises, all warnings, the random
state after it and what is left of it are seen too. All of it is a JSON document in $TRUTH.
"""

import functools
import gc
import hashlib
import json
import multiprocessing
import os
import random
import re
import sys
import threading
import traceback
import warnings

import numpy
import torch
from torch.utils.data import DataLoader, _utils

# A busy machine may be slow to end a worker: nothing here depends on how long that takes.
_utils.MP_STATUS_CHECK_INTERVAL = 60.0
HOOK = "<lotus hook"
HERE = os.path.dirname(os.path.abspath(__file__))
METHOD = sys.argv[1] if len(sys.argv) > 1 else "fork"


def plain(thing):
    """`thing` as JSON-able values that tell types and every bit."""
    if isinstance(thing, torch.Tensor):
        data = thing.detach().contiguous().numpy().tobytes()
        digest = hashlib.sha256(data).hexdigest()[:12]
        return ["tensor", str(thing.dtype), list(thing.shape), thing.is_pinned(), digest]
    if isinstance(thing, numpy.ndarray):
        return ["array", str(thing.dtype), thing.tolist()]
    if isinstance(thing, dict):
        return {"class": type(thing).__name__, **{str(key): plain(thing[key]) for key in thing}}
    if isinstance(thing, (list, tuple)):
        return [type(thing).__name__, *map(plain, thing)]
    if type(thing) in (str, int, bool, type(None)):
        return thing
    return words(f"{type(thing).__name__} {thing!r}")


def words(text):
    """`text` without process ids and addresses."""
    text = re.sub(r"\(pid(\(s\))? [\d, ]+\)", "(pid)", text)
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def frames(error):
    """Where it was raised, as a program that logs exceptions sees it, without lotus's hooks.

    Of torch without lines: which it is may depend on whether a batch had come before its turn.
    """
    rows = []
    for frame in traceback.extract_tb(error.__traceback__):
        folder, name = os.path.split(frame.filename)
        if not frame.filename.startswith(HOOK):
            rows.append((name, frame.name, frame.lineno if folder == HERE else 0))
    return rows


def raised(error):
    """What the user sees of an exception and of those that it is about."""
    facts = [type(error).__name__, words(str(error)), frames(error)]
    for other in (error.__cause__, error.__context__):
        facts.append(other and [type(other).__name__, words(str(other)), frames(other)])
    # torch's frames refer to the exception and to the iterator, which would wait for the collector.
    for link in (error, error.__cause__, error.__context__):
        if link is not None:
            traceback.clear_frames(link.__traceback__)
    return facts


class Seen:
    """What one feature wrote down."""

    def __init__(self):
        self.rows = []

    def __call__(self, name, thing=None):
        self.rows.append([name, plain(thing)])

    def of(self, name, function, *args, **kwargs):
        """Write down what `function` returns or raises; return what it returns."""
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            self.rows.append([name, "raised", raised(error)])
            return None
        self(name, result)
        return result

    def loop(self, name, loader, limit=None):
        """Write down every batch of a loop, and how it ended; return the workers' exit codes."""
        batches, end = [], "end"
        try:
            iterator = iter(loader)
            workers = list(getattr(iterator, "_workers", ()))
            while limit is None or len(batches) < limit:
                batches.append(plain(next(iterator)))
            end = "left"
        except StopIteration as error:
            raised(error)
        except Exception as error:
            end = raised(error)
            workers = []
        iterator = None
        self.rows.append([name, batches, end])
        persistent = getattr(loader, "persistent_workers", False)
        codes = [worker.exitcode for worker in ([] if persistent else workers)]
        self.rows.append([name, "exit codes", codes])


def state():
    sha = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    sha.update(repr((random.getstate(), numpy.random.get_state())).encode())
    return sha.hexdigest()[:12]


def left():
    """What goes on after a feature, and how torch and Python are set."""
    names = {thread.name for thread in threading.enumerate()}
    return {
        "random": state(),
        "threads": sorted(names - {"QueueFeederThread"}),  # which ends by itself
        "children": len(multiprocessing.active_children()),
        "torch threads": torch.get_num_threads(),
        "collector": gc.isenabled(),
        "start method": multiprocessing.get_start_method(),
    }


def observe(feature):
    see = Seen()
    torch.manual_seed(5)
    random.seed(6)
    numpy.random.seed(7)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Of Python 3.12, where the thread of a queue that is closed has not ended yet: by chance.
        warnings.filterwarnings("ignore", ".*is multi-threaded, use of fork", DeprecationWarning)
        try:
            feature(see)
        except Exception as error:
            see.rows.append(["the feature raised", raised(error)])
        gc.collect()
    warned = [
        (
            warning.category.__name__,
            words(str(warning.message)),
            os.path.basename(warning.filename),
            warning.lineno,
        )
        for warning in caught
    ]
    return {"seen": see.rows, "warnings": warned, "after": left()}


def workers(count=2, **kwargs):
    return {"num_workers": count, "multiprocessing_context": METHOD if count else None, **kwargs}


def loaders(*args, counts=(0, 2), **kwargs):
    """The same loader in the main process and with workers, each with its name."""
    for count in counts:
        yield f"{count} workers", DataLoader(*args, **workers(count, **kwargs))


seeded = functools.partial(torch.Generator().manual_seed, 11)


def main(names):
    import paired_errors
    import paired_results

    gc.freeze()  # each child would look through all of torch at its end
    observed = {}
    for name in names:
        print("==", name, file=sys.stderr, flush=True)
        feature = getattr(paired_results, name, None) or getattr(paired_errors, name)
        observed[name] = observe(feature)
    with open(os.environ["TRUTH"], "w") as file:
        json.dump(observed, file)


if __name__ == "__main__":
    sys.modules["paired"] = sys.modules["__main__"]  # its features import what is here
    main(sys.argv[2:])

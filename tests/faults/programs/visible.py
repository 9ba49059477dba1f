"""Prints as JSON what a program with two operations can see of itself."""

import json
import os
import pickle
import sys
import threading

from pipeline import Numbers
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as module


def halve(value):
    return value / 2


class Double:
    def __call__(self, value):
        return 2 * value


def place(function):
    """Where a function was written, by the file and name that its code has."""
    function = getattr(function, "__func__", function)
    return [function.__code__.co_filename, function.__name__]


def functions():
    """Those of torch's loaders, by name."""
    utils = module._utils
    owners = [DataLoader, module._MultiProcessingDataLoaderIter, module._DatasetKind]
    owners += [module._SingleProcessDataLoaderIter, utils.pin_memory, utils.worker]
    places = {}
    for owner in owners:
        for name, value in vars(owner).items():
            value = getattr(value, "__func__", value)
            if hasattr(value, "__code__"):
                places[f"{owner.__name__.rpartition('.')[2]}.{name}"] = place(value)
    return places


def seen():
    data = Numbers(4, [Double(), halve])
    before = pickle.dumps(data)
    loader = DataLoader(data, batch_size=2, collate_fn=list)
    iterator = iter(loader)
    batch = next(iterator)
    workers = iter(DataLoader(data, batch_size=2, collate_fn=list, num_workers=1))
    threads = sorted(thread.name for thread in threading.enumerate())
    facts = {
        "environment": dict(os.environ),
        "path": sys.path,
        "finders": [type(finder).__name__ for finder in sys.meta_path],
        "modules": sorted(sys.modules),
        "threads": threads,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "functions": functions(),
        "iterator": sorted(vars(iterator)),
        "iterator with workers": sorted(vars(workers)),
        "loader": sorted(vars(loader)),
        "data set": sorted(vars(data)),
        "fetcher": type(iterator._dataset_fetcher).__name__,
        "data set of the fetcher": type(iterator._dataset_fetcher.dataset).__name__,
        "transforms": [type(transform).__name__ for transform in data.transform.transforms],
        "is": data.transform.transforms[1] is halve,
        "equal": data.transform.transforms[1] == halve,
        "same bytes": pickle.dumps(data) == before,
        "unpickled": type(pickle.loads(pickle.dumps(data)).transform.transforms[1]).__name__,
        "hooks": [
            sys.excepthook is sys.__excepthook__,
            sys.unraisablehook is sys.__unraisablehook__,
            sys.gettrace() is None,
            sys.getprofile() is None,
        ],
        "batch": batch,
    }
    del workers
    return facts


if __name__ == "__main__":
    print(json.dumps(seen()))

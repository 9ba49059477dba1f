"""A sampler that takes its time before its first index and for each; $TRUTH has what it took.

It writes the nanoseconds of each epoch, by loader: [before the first index, in all].
"""

import json
import os
import time

from torch.utils.data import DataLoader

SAMPLES = 12
took = []


class Slow:
    def __len__(self):
        return SAMPLES

    def __iter__(self):
        took[-1].append([0, 0])
        mine = took[-1][-1]
        begun = time.monotonic_ns()
        time.sleep(0.03)
        mine[:] = [time.monotonic_ns() - begun] * 2
        for index in range(SAMPLES):
            begun = time.monotonic_ns()
            time.sleep(0.002)
            mine[1] += time.monotonic_ns() - begun
            yield index


class Failing(Slow):
    def __iter__(self):
        yield from range(4)
        raise LookupError("no more indices")


for settings in (
    {},
    {"num_workers": 2},
    {"num_workers": 1, "persistent_workers": True, "prefetch_factor": 1},
):
    took.append([])
    loader = DataLoader(range(SAMPLES), 3, sampler=Slow(), **settings)
    for _ in range(2):
        print([batch.tolist() for batch in loader])
with open(os.environ["TRUTH"], "w") as truth:
    json.dump(took, truth)
for _ in DataLoader(range(SAMPLES), 3, sampler=Failing()):
    pass

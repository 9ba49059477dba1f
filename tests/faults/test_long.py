"""A log of very many seconds of many workers: read, and followed, in little more than one window.

LOTUS_LONG_MB says how large it is (160); a million seconds of a worker at level op, ten batches a
second of 32 samples with five operations, would be some 36 GB.
"""

import os
import subprocess
import sys

import numpy as np

from lotus.inside.trace.log import log_format
from tests.launching import ROOT

MEASURED = """
import resource, sys
from pathlib import Path
from lotus.reading.logs import frame_scanner as frames
from lotus.reading.logs.event_log import EventLog
from lotus.live import tailing

frames.WINDOW = 4 << 20
how, folder = sys.argv[1], Path(sys.argv[2])
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
before = peak()
found = 0
if how == "scan":
    log = EventLog(str(folder / "events"), "one.ltr")
    found, lost = len(log.fixed["batch"]), log.lost
else:
    tailing._AT_ONCE = 4 << 20
    tail = tailing.Tail(folder)
    while True:
        fresh = tail.read()
        found += sum(len(one.rows["batch"]) for one in fresh)
        if not fresh and not tail.behind:
            break
    lost = []
print(found, len(lost), peak() - before)
"""


def measured(how, folder):
    words = [sys.executable, "-c", MEASURED, how, str(folder)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=True)
    return tuple(map(int, done.stdout.split()))


def test_memory_is_that_of_what_is_kept_and_not_of_the_log(tmp_path):
    from tests.logs import pack_header
    from tools.bench.large_runs import frames, sealed

    size = int(os.environ.get("LOTUS_LONG_MB", "160")) << 20
    made = frames(log_format.BATCH, 64, {"samples": 32, "ops": 160})
    made["samples"]["ops"] = np.arange(5, 161, 5)
    part = sealed(made)
    (tmp_path / "events").mkdir()
    count = size // len(part)
    with (tmp_path / "events" / "one.ltr").open("wb") as file:
        file.write(pack_header())
        for _ in range(count):
            file.write(part)
    for how in ("scan", "follow"):
        samples, lost, grown = measured(how, tmp_path)
        assert (samples, lost) == (count * 64, 0)
        # The fixed fields of a batch are kept, 200 bytes of 3 kB; never a sample or an operation.
        assert grown < size / 5 + (24 << 20), how

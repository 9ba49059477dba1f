"""Measures how often `lotus attach --perf` assigns a sample of perf to the right operation.

    PYTHONPATH=. python tools/bench/attach_functions.py [--ms 1,1,1,1 5,20,100,2 ...] [--seconds 15]
        [--workers 2]

The observed program logs when each of its operations begins and ends; --ms are their CPU times,
milliseconds. Printed for each operation: its duration, the number of stacks that were matched with
a sample of perf, how many of these samples lie within a call of that operation, and whether lotus
lists the operation's functions.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import provenance

from lotus.analysis.attached import sampled_functions
from lotus.analysis.attached.evidence import AttachEvidence
from lotus.attach import observation
from lotus.attach.files import attached_run
from lotus.attach.threads.thread_readings import children_of

NAMES = ("Checksum", "Digest", "Adler", "Remainder")
PROGRAM = """
import binascii, hashlib, os, sys, time, zlib
import torch
from torch.utils.data import DataLoader, Dataset

BYTES = bytes(20_000)
TRUTH = None

def compute(self, function, value):
    global TRUTH
    if TRUTH is None:
        TRUTH = os.open(f"truth.{os.getpid()}", os.O_CREAT | os.O_WRONLY)
    begin, until = time.monotonic_ns(), time.thread_time() + self.seconds
    while time.thread_time() < until:
        function(BYTES)
    os.write(TRUTH, f"{type(self).__name__} {begin} {time.monotonic_ns()}\\n".encode())
    return value

class Timed:
    def __init__(self, seconds):
        self.seconds = seconds

class Checksum(Timed):
    def __call__(self, value):
        return compute(self, zlib.crc32, value)

class Digest(Timed):
    def __call__(self, value):
        return compute(self, lambda data: hashlib.sha256(data).digest(), value)

class Adler(Timed):
    def __call__(self, value):
        return compute(self, zlib.adler32, value)

class Remainder(Timed):
    def __call__(self, value):
        return compute(self, lambda data: binascii.crc_hqx(data, 0), value)

class Compose:
    def __init__(self, transforms):
        self.transforms = transforms
    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value

class Data(Dataset):
    def __init__(self, times):
        classes = (Checksum, Digest, Adler, Remainder)
        self.transform = Compose([each(ms / 1e3) for each, ms in zip(classes, times)])
    def __len__(self):
        return 10_000_000
    def __getitem__(self, index):
        return self.transform(torch.zeros(4))

if __name__ == "__main__":
    times = [float(ms) for ms in sys.argv[1].split(",")]
    for batch in DataLoader(Data(times), batch_size=8, num_workers=int(sys.argv[2])):
        time.sleep(0.001)
"""


def measure(times: str, seconds: float, workers: int) -> pd.DataFrame:
    """One row per operation: wall_ms, stacks, right, state."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "program.py").write_text(PROGRAM)
        words = [sys.executable, "program.py", times, str(workers)]
        program = subprocess.Popen(words, cwd=folder, start_new_session=True)
        try:
            while len(children_of(program.pid)) < workers and program.poll() is None:
                time.sleep(0.05)
            time.sleep(2)  # the first batches
            run = observation.attach(program.pid, seconds, Path(folder, "run"), perf=True)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
        evidence = attached_run.load(run)
        truth = {
            int(path.name.partition(".")[2]): pd.read_csv(path, sep=" ", names=["name", "b", "e"])
            for path in Path(folder).glob("truth.*")
        }
    return _rows(evidence, truth)


def _rows(evidence: AttachEvidence, truth: dict[int, pd.DataFrame]) -> pd.DataFrame:
    summary, seen = sampled_functions.summarise_functions(evidence), evidence.functions
    if summary is None or seen is None:
        raise SystemExit("; ".join(evidence.missing))
    at = sampled_functions.matched_samples(evidence)
    label = evidence.labels["name"].reindex(seen.moments["label"]).to_numpy(dtype=object)
    states = {each.name: each.state for each in summary.operations}
    times = seen.samples["time_ns"].to_numpy()
    rows = []
    for name in NAMES:
        right, spans = [], []
        for pid, calls in truth.items():
            mine = (at >= 0) & (seen.moments["tid"] == pid).to_numpy() & (label == name)
            time_ns = times[at[mine]]
            begin, end = calls["b"].to_numpy(), calls["e"].to_numpy()
            time_ns = time_ns[(time_ns > begin.min()) & (time_ns < end.max())]
            place = np.searchsorted(begin, time_ns, side="right") - 1
            right += ((calls["name"].to_numpy()[place] == name) & (time_ns <= end[place])).tolist()
            spans += ((end - begin)[calls["name"] == name] / 1e6).tolist()
        rows.append((name, np.median(spans), len(right), np.mean(right), states.get(name, "-")))
    return pd.DataFrame(rows, columns=["operation", "wall_ms", "stacks", "right", "state"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ms", nargs="+", default=["1,1,1,1", "5,5,5,5", "5,20,100,2"])
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    print(provenance.header())
    for times in args.ms:
        print(f"\n{times} ms, load {os.getloadavg()[0]:.1f}")
        print(measure(times, args.seconds, args.workers).round(3).to_string(index=False))


if __name__ == "__main__":
    main()

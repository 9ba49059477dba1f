"""Compares lotus's time in gradient synchronisation with that of torch.profiler.

    PYTHONPATH=. python tools/bench/accuracy/gradient_times.py [--steps 60]

A traced job of two gloo ranks, one of which computes longer, alternately, also runs under
torch.profiler. In each step the profiler shows the end of the last gradient (`AccumulateGrad`) and
of the last `gloo:all_reduce`; between the two, nothing else overlaps the synchronisation. lotus
takes both times in callbacks of the autograd engine. Printed: the profiler's time in milliseconds,
and by how much that of lotus exceeds it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.bench import provenance

WARM_UP = 3  # steps before the profiler looks
WAITS_S = (0.0, 0.02)  # what a rank computes longer, in turns


def rank(folder: Path, steps: int) -> None:
    """Train as one rank; leave what the profiler saw of each step, in us."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import ProfilerActivity, profile, record_function

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    me = dist.get_rank()
    layers = [nn.Linear(512, 512) for _ in range(8)]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=2)
    data = torch.randn(64, 512)

    def step(k: int) -> None:
        output = model(data).sum()
        time.sleep(WAITS_S[(k + me) % 2])
        output.backward()

    for k in range(WARM_UP):
        step(k)
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        for k in range(steps):
            with record_function(f"step {k}"):
                step(k)
    dist.destroy_process_group()
    trace = folder / f"trace.{me}.json"
    watched.export_chrome_trace(str(trace))
    events = json.loads(trace.read_text())["traceEvents"]
    (folder / f"profiler.{me}.json").write_text(json.dumps(exposed_us(events, steps)))


def exposed_us(events: list[dict], steps: int) -> list[float]:
    """Return for each step the time from its last gradient to the end of its last all-reduce."""
    spans = {
        event["name"]: (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("ph") == "X" and event["name"].startswith("step ")
    }
    exposed = []
    for k in range(steps):
        begin, end = spans[f"step {k}"]
        last = {"torch::autograd::AccumulateGrad": 0.0, "gloo:all_reduce": 0.0}
        for event in events:
            if event.get("ph") == "X" and event["name"] in last and begin <= event["ts"] <= end:
                last[event["name"]] = max(last[event["name"]], event["ts"] + event["dur"])
        gradients, reduced = last.values()
        if not (gradients and reduced):
            raise SystemExit(f"step {k}: the profiler has no gradient or no all-reduce")
        exposed.append(reduced - gradients)
    return exposed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        rank(args.rank, args.steps)
        return
    import torch

    from lotus.reading.run import load

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "R")
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        job = [*torchrun, "--nproc-per-node", "2", __file__]
        trace = [sys.executable, "-m", "lotus", "trace", "-q", "-o", str(run), "--"]
        words = [*trace, *job, "--rank", folder, "--steps", str(args.steps)]
        path = {"PYTHONPATH": str(provenance.ROOT), "OMP_NUM_THREADS": "1"}
        subprocess.run(words, check=True, env={**os.environ, **path})
        syncs = load(run).syncs
        print(provenance.header(torch))
        for me in (0, 1):
            theirs = json.loads(Path(folder, f"profiler.{me}.json").read_text())
            rows = syncs[syncs["rank"] == me].iloc[WARM_UP:]
            ours = ((rows["end_ns"] - rows["ready_ns"]) / 1000).tolist()
            for wait in (0, 1):
                of = [k for k in range(args.steps) if (k + me) % 2 == wait]
                more = [ours[k] - theirs[k] for k in of]
                low, middle, high = statistics.quantiles(more, n=4)
                print(
                    f"rank {me} arrives {'last ' if wait else 'first'}: profiler "
                    f"{statistics.median(theirs[k] for k in of):8.0f} us, lotus "
                    f"{middle:+5.0f} ({low:+.0f} to {high:+.0f}), {len(of)} steps"
                )


if __name__ == "__main__":
    main()
